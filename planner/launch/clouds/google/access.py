"""Credentials, endpoints and clock of Google Cloud, and translation of its libraries' errors."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.api_call import CloudError, ErrorKind
from ...core.clock import ServerDateClock
from .error_codes import parse_error_response

__all__ = ["TIMEOUT_S", "GoogleAccess", "endpoint", "translate_errors"]

TIMEOUT_S = 60.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Variables are gcloud's own: https://cloud.google.com/sdk/gcloud/reference/config/set (api_endpoint_overrides).
_ENDPOINTS = {
    "compute": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "tpu": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "https://tpu.googleapis.com/"),
    "storage": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com/storage/v1/"),
}


def endpoint(interface: str) -> str:
    """Return the endpoint of an API: `compute`, `tpu`, `storage`."""
    variable, default = _ENDPOINTS[interface]
    return os.environ.get(variable, default)


class GoogleAccess:
    """Application default credentials, and the cloud's clock."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self.clock = ServerDateClock()

    def credentials(self) -> Any:
        """Return the credentials, read once."""
        if self._credentials is None:
            import google.auth
            from google.auth.exceptions import GoogleAuthError

            try:
                self._credentials, _ = google.auth.default(scopes=[SCOPE])
            except (GoogleAuthError, OSError, ValueError) as error:
                raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, str(error)) from error
        return self._credentials

    def note_time(self, answer: Any, *_: Any, **__: Any) -> None:
        """Take the time from an answer; a hook of `requests`."""
        self.clock.note(answer.headers.get("Date"))

    def missing(self) -> str:
        """Return the reason why Google Cloud cannot be called from here; empty if it can. Sends nothing."""
        if any(not _is_installed(name) for name in ("google.auth", "google.cloud.compute_v1")):
            return "Google's clients are not installed: `pip install 'gpuplan[gcp]'`"
        if not _has_credentials():
            return "no credentials for Google Cloud: `gcloud auth application-default login`"
        return ""


@contextmanager
def translate_errors(*, makes: bool) -> Iterator[None]:
    """Convert errors of Google's libraries to CloudError; a missing answer is an unknown outcome.

    Args:
        makes: Whether the call makes something.
    """
    import requests
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.protobuf.json_format import ParseError

    try:
        yield
    except GoogleAPICallError as error:
        raise parse_error_response(int(error.code or 0), _body(error.response), makes=makes) from error
    except TransportError as error:  # no token; the call was not sent
        raise CloudError(ErrorKind.TRANSIENT, type(error).__name__, str(error)) from error
    except GoogleAuthError as error:
        raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, str(error)) from error
    except requests.RequestException as error:
        raise CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error)) from error
    except (ParseError, ValueError, AttributeError, TypeError) as error:
        # The clients raise the last two for an error body that is JSON but not in Google's form.
        raise CloudError(ErrorKind.UNKNOWN, "GarbledAnswer", "the answer is not in Google's JSON") from error


def _body(answer: Any) -> Any:
    """Return the JSON of an answer, or None."""
    try:
        return answer.json() if answer is not None else None
    except ValueError:
        return None


def _is_installed(name: str) -> bool:
    """Whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _has_credentials() -> bool:
    """Whether credentials may exist: a configured or default file, or a machine of Google Cloud."""
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG", Path.home() / ".config" / "gcloud"))
    board = Path("/sys/class/dmi/id/product_name")
    on_google = board.exists() and "Google" in board.read_text(encoding="utf-8", errors="replace")
    return on_google or (folder / "application_default_credentials.json").exists()

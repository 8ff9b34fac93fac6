"""Calls to Google Cloud, each sent once: credentials, endpoints, clock, and classification of errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.api_call import CloudError, ErrorKind, look_up
from ...core.upload import build_archive
from ..base import find_status_kind, load_error_kinds
from ..rest import RestAccess

if TYPE_CHECKING:
    import requests

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# gcloud's own variables: https://cloud.google.com/sdk/gcloud/reference/config/set (api_endpoint_overrides).
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"


def _has_credentials() -> bool:
    """Whether credentials may exist: a configured or default file, or a machine of Google Cloud."""
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG", Path.home() / ".config" / "gcloud"))
    board = Path("/sys/class/dmi/id/product_name")
    on_google = board.exists() and "Google" in board.read_text(encoding="utf-8", errors="replace")
    return on_google or (folder / "application_default_credentials.json").exists()


_KIND_OF = load_error_kinds("google")  # codes in upper case
_NOT_HERE = ("does not exist in zone", "acceleratortypes/", "machinetypes/", "unknown zone", "accelerator type")
_RPC_EXHAUSTED = 8
# "The resource 'projects/p1/zones/us-east1-b' was not found": the place, not the resource.
_PLACE = re.compile(r"projects/[^/']+(/(zones|locations)/[^/']+)?'? was not found")


def parse_error_response(status: int, body: Any, *, makes: bool) -> CloudError:
    """Return the CloudError of an error response; "not found" is about the place of a thing that a call makes."""
    error = look_up(body, "error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        kind = ErrorKind.THROTTLED if status == 429 else ErrorKind.UNKNOWN
        return CloudError(kind, f"HTTP {status}", "")
    code = str(look_up(error, "errors.0.reason") or error.get("status") or status)
    message = str(error.get("message", ""))
    kind = _named(code, message) or _by_status(status, message, makes=makes)
    return CloudError(kind, code, message, scope=_scope(message))


def parse_operation_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a failed operation, or None."""
    first = look_up(reply, "error.errors.0")
    if isinstance(first, Mapping):
        code, message = str(first.get("code", "")), str(first.get("message", ""))
        kind = _named(code, message) or (ErrorKind.CAPACITY if _is_not_here(message) else ErrorKind.INVALID)
        return CloudError(kind, code, message, scope=_scope(message))
    if reply.get("done") and isinstance(reply.get("error"), Mapping):
        return _of_rpc(reply["error"])
    return None


def parse_tpu_state_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a queued resource that failed or ended, or None."""
    state = look_up(reply, "state.state")
    if state == "FAILED":
        return _of_rpc(look_up(reply, "state.failedData.error") or {})
    if state in {"SUSPENDING", "SUSPENDED", "DELETING"}:
        return CloudError(ErrorKind.SPENT_TOKEN, str(state), "the slice ended while it started")
    return None


def _named(code: str, message: str) -> ErrorKind | None:
    return _exhausted(message) if code.upper() == "RESOURCE_EXHAUSTED" else _KIND_OF.get(code.upper())


def _by_status(status: int, message: str, *, makes: bool) -> ErrorKind:
    if status in {400, 404} and makes and _is_not_here(message):
        return ErrorKind.CAPACITY
    absent = ErrorKind.INVALID if makes or _PLACE.search(message) else ErrorKind.ABSENT
    taken = ErrorKind.EXISTS if makes else ErrorKind.TRANSIENT
    return find_status_kind(status, {404: absent, 409: taken})


def _of_rpc(error: Mapping[str, Any]) -> CloudError:
    """Return the CloudError of a `google.rpc.Status`; a failed slice usually means no capacity."""
    code, message = int(error.get("code", 0)), str(error.get("message", ""))
    kinds = {3: ErrorKind.INVALID, 7: ErrorKind.CREDENTIALS, 16: ErrorKind.CREDENTIALS}
    kind = _exhausted(message) if code == _RPC_EXHAUSTED else kinds.get(code, ErrorKind.CAPACITY)
    return CloudError(kind, f"rpc {code}", message, scope=_scope(message))


def _exhausted(message: str) -> ErrorKind:
    """Return the kind of an exhausted resource: capacity, quota or request rate."""
    lower = message.lower()
    if "quota limit" in lower or "quota exceeded" in lower:
        return ErrorKind.THROTTLED if "per minute" in lower else ErrorKind.QUOTA
    return ErrorKind.CAPACITY


def _is_not_here(message: str) -> bool:
    return any(part in message.lower() for part in _NOT_HERE)


def _scope(message: str) -> str:
    return "account" if "GPUS_ALL_REGIONS" in message or "all_regions" in message.lower() else "region"


_BOUNDARY = "gpuplan-next-part"


class GoogleAccess(RestAccess):
    """Application default credentials, the cloud's clock, and calls."""

    folder, making = "google", "POST"
    parse_response = staticmethod(parse_error_response)

    def missing(self) -> str:
        """Return the reason why Google Cloud cannot be called from here; empty if it can. Sends nothing."""
        if find_spec("google") is None or find_spec("google.auth") is None:
            return "Google's clients are not installed: `pip install 'gpuplan[gcp]'`"
        if not _has_credentials():
            return "no credentials for Google Cloud: `gcloud auth application-default login`"
        return ""

    @cached_property
    def session(self) -> requests.Session:
        """Session that renews its token, and retries nothing else."""
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        try:
            credentials, _ = google.auth.default(scopes=[SCOPE])
        except (GoogleAuthError, OSError, ValueError) as error:
            raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, str(error)) from error
        session: requests.Session = AuthorizedSession(credentials)
        return session

    def find_endpoint(self, service: str) -> str:
        """Return the address of an interface, without the prefix that some variables have."""
        interface = service.partition(".")[0]
        found = os.environ.get(_ENDPOINT + interface.upper(), f"https://{interface}.googleapis.com")
        return found.rstrip("/").removesuffix(f"/{interface}/v1") + "/"

    def parse_error(self, error: Exception) -> CloudError | None:
        from google.auth.exceptions import GoogleAuthError, TransportError

        if isinstance(error, GoogleAuthError):  # no token; the call was not sent
            kind = ErrorKind.TRANSIENT if isinstance(error, TransportError) else ErrorKind.CREDENTIALS
            return CloudError(kind, type(error).__name__, str(error))
        return super().parse_error(error)

    def pack(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return body and headers, for an upload as in cloud.google.com/storage/docs/uploading-objects."""
        if "media" not in params:
            return super().pack(params)
        head = f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{json.dumps(params['body'])}\r\n"
        middle = f"--{_BOUNDARY}\r\nContent-Type: application/gzip\r\n\r\n"
        data = (head + middle).encode() + build_archive(params["media"]) + f"\r\n--{_BOUNDARY}--\r\n".encode()
        return {"data": data, "headers": {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}}

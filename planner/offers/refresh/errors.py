"""Errors of reading prices from a provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from ...errors import GpuplanError

FetchErrorKind = Literal[
    "unreachable", "throttled", "server", "credentials", "not found", "malformed", "truncated", "disordered",
    "slow", "refused", "late", "unchanged",
]  # fmt: skip
_KINDS: Mapping[int, FetchErrorKind] = {
    304: "unchanged", 401: "credentials", 403: "credentials", 404: "not found", 429: "throttled",
}  # fmt: skip
RETRYABLE_KINDS: frozenset[FetchErrorKind] = frozenset({"throttled", "server", "truncated", "malformed"})
HOST_KINDS = RETRYABLE_KINDS | {"unreachable", "slow"}  # after which a host is not asked again


class FetchError(GpuplanError):
    """No complete, well-formed response from a provider.

    Args:
        message: One line naming thing and place.
        kind: Kind of failure; some kinds are retried.
        retry_after_s: Wait requested by the provider [s]; None if not given.
        host: Host that failed; empty for other failures.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FetchErrorKind,
        retry_after_s: float | None = None,
        hint: str | None = None,
        host: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.host = host
        self.kind: FetchErrorKind = kind
        self.retry_after_s = retry_after_s


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Convert errors of requests and urllib3 to FetchErrors, which name the host of a URL, or a vendor.

    A host that accepted no connection counts as unreachable; after a timeout or a broken connection, the next
    attempt may succeed.
    """
    import requests
    import urllib3

    host = parse_host(url)
    try:
        yield
    except requests.ConnectTimeout as error:
        raise _build_connection_error(error, host) from error
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise FetchError(f"{host} did not respond in time", kind="slow", host=host) from error
    except (requests.exceptions.ChunkedEncodingError, urllib3.exceptions.ProtocolError) as error:
        raise FetchError(f"the response of {host} was truncated", kind="truncated", host=host) from error
    except (requests.exceptions.ContentDecodingError, urllib3.exceptions.DecodeError, EOFError) as error:
        raise FetchError(f"the response of {host} is corrupt", kind="truncated", host=host) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise _build_connection_error(error, host) from error


def _build_connection_error(error: Exception, host: str) -> FetchError:
    """Build the error of a connection that failed, or that broke before an answer."""
    import urllib3

    reason = error.args[0] if error.args else None
    reason = getattr(reason, "reason", reason)
    if isinstance(reason, urllib3.exceptions.ReadTimeoutError):
        return FetchError(f"{host} did not respond in time", kind="slow", host=host)
    if isinstance(reason, urllib3.exceptions.ProtocolError):
        return FetchError(f"{host} closed the connection", kind="truncated", host=host)
    return FetchError(
        f"{host} cannot be reached ({type(error).__name__})",
        kind="unreachable",
        hint="check the network, or a proxy in HTTPS_PROXY",
        host=host,
    )


def parse_host(url: str) -> str:
    """Return the host of a URL: paths are long, and a query may contain keys."""
    from urllib.parse import urlsplit

    return urlsplit(url).netloc or url


def classify_status(status: int) -> FetchErrorKind:
    """Return the kind of failure that an HTTP status other than 200 stands for."""
    return _KINDS.get(status, "server" if status >= 500 else "refused")

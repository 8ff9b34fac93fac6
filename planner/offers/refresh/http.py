"""HTTP for sources: whole answers or FetchError; retries with back-off; what a vendor asks to wait is waited.

On requests: proxies, certificates and TLS are as the user's environment has them. A body that ends before its
announced length, a drip that never ends and text that is not JSON are errors, never data.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .source import FetchError, Kind

if TYPE_CHECKING:
    import requests
    from tenacity import RetryCallState

__all__ = ["MAX_ANSWER_BYTES", "Answer", "Http", "Patience", "retry_after_s"]

T = TypeVar("T")
MAX_ANSWER_BYTES = (
    64 * 2**20
)  # of a JSON answer; the largest known, a page of 5,000 Google SKUs, has about 10 MB
CHUNK_BYTES = 2**16
_KINDS: Mapping[int, Kind] = {401: "credentials", 403: "credentials", 404: "not found", 429: "throttled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for what.

    Args:
        connect_s, read_s: For a connection, and for the next bytes [s].
        answer_s: For the whole of a JSON answer, however busily it drips [s].
        attempts: How often a question is put [-].
        wait_s: First pause between attempts; it doubles, with jitter [s].
        longest_wait_s: Longest pause; a vendor that asks for more is not asked again [s].
    """

    connect_s: float = 10.0
    read_s: float = 30.0
    answer_s: float = 120.0
    attempts: int = 5
    wait_s: float = 0.5
    longest_wait_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON document, and where it came from."""

    data: Any
    url: str


class Http:
    """Asks vendors; one session for all.

    Args:
        patience: How long to wait for what.
        sleep: Waits between attempts; tests do not.
        now: The local clock, to notice that it is wrong.
    """

    def __init__(
        self,
        patience: Patience = Patience(),
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        import requests

        self.patience = patience
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "gpuplan (price refresh)"
        self.skew_s = 0.0  # what the vendors' clocks are ahead of ours [s]
        self._sleep = sleep
        self._now = now

    def close(self) -> None:
        """Let all connections go."""
        self.session.close()

    def retry(self, operation: Callable[[], T]) -> T:
        """Return what an operation returns, which is tried again after errors that may pass."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        return Retrying(
            retry=retry_if_exception(self._may_pass),
            stop=stop_after_attempt(self.patience.attempts),
            wait=self._wait_s,
            sleep=self._sleep,
            reraise=True,
        )(operation)

    def json(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Answer:
        """Return a JSON answer, GET or (with a body) POST."""
        return self.retry(lambda: self._json_once(url, params=params, headers=headers, body=body))

    def text(self, url: str) -> str:
        """Return a text in UTF-8."""

        def attempt() -> str:
            with _translated(url), self._request("GET", url) as response:
                self._require_good(response)
                body = self._whole_body(response)
            try:
                return body.decode("utf-8")
            except UnicodeDecodeError as error:
                raise FetchError(f"{_host(url)} did not answer in UTF-8", kind="malformed") from error

        return self.retry(attempt)

    @contextmanager
    def stream(self, url: str) -> Iterator[io.BufferedReader]:
        """Open a large file for reading line by line; a whole retry is the caller's (``retry``)."""
        with _translated(url), self._request("GET", url) as response:
            self._require_good(response)
            response.raw.decode_content = True
            response.raw.auto_close = False  # else it is closed while its last lines wait in the buffer
            yield io.BufferedReader(cast(Any, response.raw), buffer_size=CHUNK_BYTES)

    def _json_once(
        self, url: str, *, params: Mapping[str, str] | None, headers: Mapping[str, str] | None, body: Any
    ) -> Answer:
        """Return a JSON answer of one attempt."""
        method = "GET" if body is None else "POST"
        with (
            _translated(url),
            self._request(method, url, params=params, headers=headers, json=body) as response,
        ):
            self._require_good(response)
            text = self._whole_body(response)
        try:
            return Answer(json.loads(text), url)
        except ValueError as error:
            raise FetchError(f"{_host(url)} did not answer in JSON: {error}", kind="malformed") from error

    def _request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Send a request; the body is read later."""
        timeouts = (self.patience.connect_s, self.patience.read_s)
        response = self.session.request(method, url, stream=True, timeout=timeouts, **options)
        self._note_clock(response.headers.get("Date"))
        return response

    def _require_good(self, response: requests.Response) -> None:
        """Raise FetchError unless the vendor answers with 200."""
        if response.status_code == 200:
            return
        kind: Kind = _KINDS.get(response.status_code, "server" if response.status_code >= 500 else "refused")
        wait_s = retry_after_s(response.headers.get("Retry-After"), now=self._now())
        why = f"{_host(response.url)} answered {response.status_code} {response.reason or ''}".rstrip()
        raise FetchError(why, kind=kind, retry_after_s=wait_s)

    def _whole_body(self, response: requests.Response) -> bytes:
        """Return the whole body; FetchError when it is too large or takes too long."""
        began, parts, size = time.monotonic(), [], 0
        for chunk in response.iter_content(CHUNK_BYTES):
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise FetchError(f"{_host(response.url)} answers without end", kind="malformed")
            if time.monotonic() - began > self.patience.answer_s:
                raise FetchError(f"{_host(response.url)} answers too slowly", kind="slow")
        return b"".join(parts)

    def _note_clock(self, stated: str | None) -> None:
        """Remember by how much a vendor's clock is ahead of ours."""
        try:
            theirs = parsedate_to_datetime(stated or "")
        except ValueError:
            return
        if theirs.tzinfo is not None:
            self.skew_s = (theirs - self._now()).total_seconds()

    def _may_pass(self, error: BaseException) -> bool:
        """Return whether another attempt may succeed."""
        return (
            isinstance(error, FetchError)
            and error.is_worth_retrying
            and (error.retry_after_s or 0.0) <= self.patience.longest_wait_s
        )

    def _wait_s(self, state: RetryCallState) -> float:
        """Return the pause before the next attempt: what the vendor asks for, or exponential with jitter [s]."""
        from tenacity import wait_exponential, wait_random

        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, FetchError) and error.retry_after_s is not None:
            return error.retry_after_s
        first, longest = self.patience.wait_s, self.patience.longest_wait_s
        return wait_exponential(multiplier=first, max=longest)(state) + wait_random(0, first)(state)


def retry_after_s(header: str | None, *, now: datetime) -> float | None:
    """Return how long a vendor asks to wait [s]: seconds, or a date; None when it does not say.

    Example:
        >>> retry_after_s("7", now=datetime(2026, 1, 1, tzinfo=UTC))
        7.0
        >>> retry_after_s("Thu, 01 Jan 2026 00:01:00 GMT", now=datetime(2026, 1, 1, tzinfo=UTC))
        60.0
    """
    if not header:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (ValueError, TypeError):
        return None


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn the errors of requests and urllib3 into FetchErrors."""
    import requests
    import urllib3

    try:
        yield
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise FetchError(f"{_host(url)} does not answer in time", kind="slow") from error
    except (requests.exceptions.ChunkedEncodingError, urllib3.exceptions.ProtocolError) as error:
        raise FetchError(f"the answer of {_host(url)} ended early", kind="truncated") from error
    except (requests.exceptions.ContentDecodingError, urllib3.exceptions.DecodeError, EOFError) as error:
        raise FetchError(f"the answer of {_host(url)} is damaged", kind="truncated") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        why = f"{_host(url)} cannot be reached ({type(error).__name__})"
        raise FetchError(
            why, kind="unreachable", hint="check the network, or a proxy in HTTPS_PROXY"
        ) from error


def _host(url: str) -> str:
    """Return the host of an address: paths are long, and keys may stand in a query."""
    from urllib.parse import urlsplit

    return urlsplit(url).netloc or url

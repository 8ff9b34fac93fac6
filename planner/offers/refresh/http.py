"""HTTP client for price sources: complete responses or FetchError, within the time that a host is given.

Based on requests, so that proxies, certificates and TLS follow the user's environment. A body shorter than
its announced length, an endless slow response and invalid JSON are errors, never data. A host that failed is not
asked again.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ...errors import GpuplanError

if TYPE_CHECKING:
    import requests


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

    `host` is empty unless a host failed; `retry_after_s` is the wait that the provider asks for [s], or None.
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
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, EOFError) as error:
        what, kind = _explain(error)
        hint = "check the network, or a proxy in HTTPS_PROXY" if kind == "unreachable" else None
        raise FetchError(what.format(host), kind=kind, hint=hint, host=host) from error


def _explain(error: Exception) -> tuple[str, FetchErrorKind]:
    """Return the message of an error about a host, and its kind."""
    from requests import ConnectTimeout, Timeout
    from requests.exceptions import ChunkedEncodingError, ContentDecodingError
    from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError, TimeoutError

    reason = error.args[0] if error.args else None
    reason = getattr(reason, "reason", reason)
    is_slow = isinstance(error, (Timeout, TimeoutError)) and not isinstance(error, ConnectTimeout)
    if is_slow or isinstance(reason, ReadTimeoutError):
        return "{} did not respond in time", "slow"
    if isinstance(error, (ChunkedEncodingError, ProtocolError)):
        return "the response of {} was truncated", "truncated"
    if isinstance(error, (ContentDecodingError, DecodeError, EOFError)):
        return "the response of {} is corrupt", "truncated"
    if isinstance(reason, ProtocolError):
        return "{} closed the connection", "truncated"
    return f"{{}} cannot be reached ({type(error).__name__})", "unreachable"


def parse_host(url: str) -> str:
    """Return the host of a URL: paths are long, and a query may contain keys."""
    from urllib.parse import urlsplit

    return urlsplit(url).netloc or url


def classify_status(status: int) -> FetchErrorKind:
    """Return the kind of failure that an HTTP status other than 200 stands for."""
    return _KINDS.get(status, "server" if status >= 500 else "refused")


S = TypeVar("S")
T = TypeVar("T")
# Of an answer; the largest known, a page of 5,000 Google SKUs, has about 10 MB.
MAX_ANSWER_BYTES = 64 * 2**20
CHUNK_BYTES = 2**16
LATE, ROUNDING_S = "there was no time left to ask", 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Time limits and number of attempts."""

    connect_s: float = 5.0  # time limit for connecting [s]
    # time limit for a whole answer: connecting, all attempts and the pauses between them [s]
    answer_s: float = 10.0
    attempts: int = 4  # maximum number of attempts [-]
    wait_s: float = 0.5  # first pause between attempts; doubles each time, with jitter [s]


def map_in_threads(
    work: Callable[[S], T], items: Sequence[S], *, most: int, limit_s: float | None = None
) -> Iterator[tuple[S, T]]:
    """Yield items with the results of some work, as they come, by daemons, which keep no process from ending.

    Exceptions of the work are raised here. After `limit_s` for all results: queue.Empty, and the threads, of which
    there are at most `most`, are left alone [s].
    """
    answers: SimpleQueue[tuple[S, T | None, BaseException | None]] = SimpleQueue()
    left = deque(items)

    def run() -> None:
        with suppress(IndexError):
            while True:
                item = left.popleft()
                try:
                    answers.put((item, work(item), None))
                except BaseException as error:
                    answers.put((item, None, error))

    for _ in range(min(most, len(items))):
        Thread(target=run, daemon=True).start()
    start_s = time.monotonic()
    for _ in items:
        left_s = None if limit_s is None else max(0.0, start_s + limit_s - time.monotonic())
        item, value, error = answers.get(timeout=left_s)
        if error is not None:
            raise error
        yield item, cast("T", value)


USUAL = RetryPolicy()


class HttpClient:
    """HTTP client with one session.

    Args:
        failed: Hosts that failed, with the error, shared with other clients of a run.
        until: Time of `time.monotonic` at which everything ends [s].
    """

    def __init__(
        self,
        policy: RetryPolicy = USUAL,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        failed: dict[str, FetchError] | None = None,
        until: float = math.inf,
    ) -> None:
        import requests

        self.policy = policy
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "gpuplan (price refresh)"
        self.skew_s = 0.0  # lead of the providers' clocks over the local one [s]
        self.etags: dict[str, str] = {}  # of the answers, by URL
        self._sleep = sleep
        self._now = now
        self._failed = {} if failed is None else failed
        self._until = until

    def close(self) -> None:
        """Close all connections."""
        self.session.close()

    def retry(self, operation: Callable[[float], T]) -> T:
        """Run an operation, again after transient errors while there is time; it takes the time left [s]."""
        until = min(time.monotonic() + self.policy.answer_s, self._until)
        attempt = 0
        while True:
            attempt += 1
            left_s = until - time.monotonic()
            if left_s <= 0.0:
                raise FetchError(LATE, kind="late")
            try:
                return operation(left_s)
            except FetchError as error:
                if error.kind == "slow" and time.monotonic() >= self._until - ROUNDING_S:
                    raise FetchError(LATE, kind="late") from error
                wait_s = error.retry_after_s  # or exponential back-off with jitter
                if wait_s is None:
                    jitter_s = random.uniform(0.0, self.policy.wait_s)
                    wait_s = self.policy.wait_s * 2.0 ** (attempt - 1) + jitter_s
                is_over = attempt >= self.policy.attempts or time.monotonic() + wait_s >= until
                if is_over or error.kind not in RETRYABLE_KINDS:
                    if error.host and error.kind in HOST_KINDS:
                        self._failed.setdefault(error.host, error)
                    raise
                self._sleep(wait_s)

    def json(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Any:
        """Send a GET or (with a body) POST request and return the JSON document of the response."""
        method = "GET" if body is None else "POST"

        def attempt(left_s: float) -> Any:
            text, _ = self._read_once(method, url, left_s, params=params, headers=headers, json=body)
            try:
                return json.loads(text)
            except ValueError as error:
                host = parse_host(url)
                message = f"{host} did not respond in JSON: {error}"
                raise FetchError(message, kind="malformed", host=host) from error

        return self.retry(attempt)

    def text(self, url: str, *, etag: str = "") -> str:
        """Send a GET request and return the response as UTF-8 text; FetchError `unchanged` if it has this ETag."""
        headers = {"If-None-Match": etag} if etag else {}

        def attempt(left_s: float) -> str:
            body, self.etags[url] = self._read_once("GET", url, left_s, headers=headers)
            try:
                return body.decode("utf-8")
            except UnicodeDecodeError as error:
                raise FetchError(f"{parse_host(url)} did not respond in UTF-8", kind="malformed") from error

        return self.retry(attempt)

    def _read_once(self, method: str, url: str, left_s: float, **options: Any) -> tuple[bytes, str]:
        """Send a request once and return body and ETag of the response; given up when its time is over.

        Whatever it waits for then: name servers, single bytes and half headers heed no timeout of requests.
        """
        host = parse_host(url)

        def read(_: None) -> tuple[bytes, str]:
            with translate_errors(url), self._request(method, url, left_s, **options) as response:
                if response.status_code == 200:
                    return self._read_body(response), response.headers.get("ETag", "")
                stated = response.headers.get("Retry-After", "").strip()
                wait_s = float(stated) if stated.isdigit() else None  # a date is later than there is time for
                why = f"{host} answered {response.status_code} {response.reason or ''}".rstrip()
                raise FetchError(why, kind=classify_status(response.status_code), retry_after_s=wait_s, host=host)

        try:
            return next(map_in_threads(read, [None], most=1, limit_s=left_s))[1]
        except Empty:
            message = f"{host} did not answer in {self.policy.answer_s:g} s"
            raise FetchError(message, kind="slow", host=host) from None

    def _request(self, method: str, url: str, left_s: float, **options: Any) -> requests.Response:
        """Send a request without reading the body."""
        known = self._failed.get(parse_host(url))
        if known is not None:
            kind = "refused" if known.kind in RETRYABLE_KINDS else known.kind  # not to be asked again
            raise FetchError(str(known), kind=kind, hint=known.hint, host=known.host)
        timeouts = (min(self.policy.connect_s, left_s), left_s)
        response = self.session.request(method, url, stream=True, timeout=timeouts, **options)
        self._note_clock(response.headers.get("Date"))
        return response

    def _read_body(self, response: requests.Response) -> bytes:
        """Read the whole body; FetchError if it is too large."""
        parts, size = [], 0
        for chunk in response.iter_content(CHUNK_BYTES):
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise FetchError(
                    f"{parse_host(response.url)} sent more than {MAX_ANSWER_BYTES} bytes", kind="malformed"
                )
        return b"".join(parts)

    def _note_clock(self, stated: str | None) -> None:
        """Record the lead of a provider's clock over the local one."""
        try:
            theirs = parsedate_to_datetime(stated or "")
        except ValueError:
            return
        if theirs.tzinfo is not None:
            self.skew_s = (theirs - self._now()).total_seconds()

"""HTTP client for price sources: complete responses or FetchError; retries with back-off; Retry-After is
honored.

Based on requests, so that proxies, certificates and TLS follow the user's environment. A body shorter than
its announced length, an endless slow response and invalid JSON are errors, never data.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .errors import RETRYABLE_KINDS, FetchError, classify_status, parse_host, translate_errors

if TYPE_CHECKING:
    import requests

T = TypeVar("T")
# Of a JSON answer; the largest known, a page of 5,000 Google SKUs, has about 10 MB.
MAX_ANSWER_BYTES = 64 * 2**20
CHUNK_BYTES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Timeouts and retry policy.

    Args:
        connect_s, read_s: Time limits for connecting and between bytes [s].
        answer_s: Time limit for a whole JSON response [s].
        attempts: Maximum number of attempts [-].
        reach_attempts: The same for a host that cannot be reached [-].
        wait_s: First pause between attempts; doubles each time, with jitter [s].
        longest_wait_s: Longest pause; if a provider asks for a longer one, there is no retry [s].
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    answer_s: float = 120.0
    attempts: int = 5
    reach_attempts: int = 2
    wait_s: float = 0.5
    longest_wait_s: float = 60.0


class HttpClient:
    """HTTP client for all providers, with one session.

    Args:
        policy: Timeouts and retry policy.
        sleep: Function that waits between attempts.
        now: Local clock, compared with the providers' clocks.
        say: Called with a line before another attempt.
    """

    def __init__(
        self,
        policy: RetryPolicy = RetryPolicy(),
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        import requests

        self.policy = policy
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "gpuplan (price refresh)"
        self.skew_s = 0.0  # lead of the providers' clocks over the local one [s]
        self._sleep = sleep
        self._now = now
        self._say = say
        self._unreachable: set[str] = set()  # hosts that are not asked again

    def close(self) -> None:
        """Close all connections."""
        self.session.close()

    def retry(self, operation: Callable[[], T]) -> T:
        """Run an operation with retries after transient errors; an unreachable host gets fewer attempts."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return operation()
            except FetchError as error:
                if not self._is_worth_retrying(error, attempt):
                    if error.host:
                        self._unreachable.add(error.host)
                    raise
                wait_s = self._compute_wait_s(error, attempt)
                self._say(f"{error}: trying again in {wait_s:.1f} s")
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

        def attempt() -> Any:
            text = self._read_once(method, url, params=params, headers=headers, json=body)
            try:
                return json.loads(text)
            except ValueError as error:
                message = f"{parse_host(url)} did not respond in JSON: {error}"
                raise FetchError(message, kind="malformed") from error

        return self.retry(attempt)

    def text(self, url: str) -> str:
        """Send a GET request and return the response as UTF-8 text."""

        def attempt() -> str:
            try:
                return self._read_once("GET", url).decode("utf-8")
            except UnicodeDecodeError as error:
                raise FetchError(f"{parse_host(url)} did not respond in UTF-8", kind="malformed") from error

        return self.retry(attempt)

    @contextmanager
    def stream(self, url: str) -> Iterator[io.BufferedReader]:
        """Open a large file for reading by line; the caller retries the whole read (``retry``)."""
        with translate_errors(url), self._request("GET", url) as response:
            self._require_good(response)
            response.raw.decode_content = True
            response.raw.auto_close = False  # otherwise closed while its last lines are still buffered
            yield io.BufferedReader(cast(Any, response.raw), buffer_size=CHUNK_BYTES)

    def _read_once(self, method: str, url: str, **options: Any) -> bytes:
        """Send a request once and return the body of the response."""
        with translate_errors(url), self._request(method, url, **options) as response:
            self._require_good(response)
            return self._read_body(response)

    def _request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Send a request without reading the body."""
        host = parse_host(url)
        if host in self._unreachable:
            raise FetchError(f"{host} cannot be reached", kind="unreachable", host=host)
        timeouts = (self.policy.connect_s, self.policy.read_s)
        response = self.session.request(method, url, stream=True, timeout=timeouts, **options)
        self._note_clock(response.headers.get("Date"))
        return response

    def _require_good(self, response: requests.Response) -> None:
        """Raise FetchError unless the status is 200."""
        if response.status_code == 200:
            return
        wait_s = parse_retry_after_s(response.headers.get("Retry-After"), now=self._now())
        why = f"{parse_host(response.url)} answered {response.status_code} {response.reason or ''}".rstrip()
        raise FetchError(why, kind=classify_status(response.status_code), retry_after_s=wait_s)

    def _read_body(self, response: requests.Response) -> bytes:
        """Read the whole body; FetchError if it is too large or too slow."""
        began, parts, size = time.monotonic(), [], 0
        for chunk in response.iter_content(CHUNK_BYTES):
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise FetchError(
                    f"{parse_host(response.url)} sent more than {MAX_ANSWER_BYTES} bytes", kind="malformed"
                )
            if time.monotonic() - began > self.policy.answer_s:
                raise FetchError(f"{parse_host(response.url)} responds too slowly", kind="slow")
        return b"".join(parts)

    def _note_clock(self, stated: str | None) -> None:
        """Record the lead of a provider's clock over the local one."""
        try:
            theirs = parsedate_to_datetime(stated or "")
        except ValueError:
            return
        if theirs.tzinfo is not None:
            self.skew_s = (theirs - self._now()).total_seconds()

    def _is_worth_retrying(self, error: FetchError, attempt: int) -> bool:
        """Return whether another attempt is left, and may succeed."""
        attempts, reach_attempts = self.policy.attempts, self.policy.reach_attempts
        return (
            error.kind in RETRYABLE_KINDS
            and error.host not in self._unreachable
            and (error.retry_after_s or 0.0) <= self.policy.longest_wait_s
            and attempt < (min(attempts, reach_attempts) if error.kind == "unreachable" else attempts)
        )

    def _compute_wait_s(self, error: FetchError, attempt: int) -> float:
        """Return the pause before the next attempt [s]: Retry-After, or exponential back-off with jitter."""
        if error.retry_after_s is not None:
            return error.retry_after_s
        first_s, longest_s = self.policy.wait_s, self.policy.longest_wait_s
        return min(first_s * 2.0 ** (attempt - 1), longest_s) + random.uniform(0.0, first_s)


def parse_retry_after_s(header: str | None, *, now: datetime) -> float | None:
    """Parse a Retry-After header [s]: seconds or a date; None if absent or invalid.

    Example:
        >>> parse_retry_after_s("7", now=datetime(2026, 1, 1, tzinfo=UTC))
        7.0
        >>> parse_retry_after_s("Thu, 01 Jan 2026 00:01:00 GMT", now=datetime(2026, 1, 1, tzinfo=UTC))
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

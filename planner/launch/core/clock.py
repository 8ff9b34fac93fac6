"""Clocks and the backoff policy. Clocks are injected: a test's clock advances when it sleeps."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime


class Clock:
    """Clock of the engine: that of the operating system."""

    def now(self) -> datetime:
        """Return the time of this computer in UTC: for records, never for deadlines at a cloud."""
        return datetime.now(tz=UTC)

    def monotonic(self) -> float:
        """Return the value of a monotonic clock [s]."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait [s]."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """Retries, polling intervals and the time limit of a teardown."""

    tries: int = 6  # maximum number of times that a throttled call or one of unknown outcome is sent [-]
    # first_wait_s, longest_wait_s: first wait between tries, doubled each time with jitter, and its limit [s]
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    poll_s: float = 5.0  # longest interval between two polls [s]
    ending_s: float = 600.0  # maximum time between the order to end a machine and its end [s]

    def delay_s(self, tries: int) -> float:
        """Return the wait after some tries: uniform(0.5, 1) * min(longest_wait_s, first_wait_s * 2^tries) [s].

        M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015, "full jitter".
        """
        ceiling = min(self.longest_wait_s, self.first_wait_s * 2.0**tries)
        return random.uniform(0.5, 1.0) * ceiling

    def poll_delay_s(self, looks: int) -> float:
        """Return the wait after a number of polls: min(poll_s, 0.1 * 2^looks) [s]."""
        return float(min(self.poll_s, 0.1 * 2.0**looks))


class ServerDateClock:
    """A cloud's clock, taken from the `Date` header of its answers; unknown before the first."""

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None

    def note(self, date: str | None) -> None:
        """Set the time from an answer's `Date`; None changes nothing."""
        if date:
            self._seen = (parsedate_to_datetime(date).astimezone(UTC), time.monotonic())

    def now(self) -> datetime | None:
        """Return the cloud's time; None before the first answer."""
        if self._seen is None:
            return None
        at, since = self._seen
        return at + timedelta(seconds=time.monotonic() - since)

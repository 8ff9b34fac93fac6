"""Time, as something that can be handed in: tests pass a clock that moves when it is slept on."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

__all__ = ["BackoffPolicy", "Clock", "ServerDateClock", "SystemClock"]


class Clock(Protocol):
    """What the engine knows of time."""

    def now(self) -> datetime:
        """Return this machine's idea of the time, in UTC: for records, never for deadlines of a cloud."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow [s]."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait [s]."""
        ...


class SystemClock:
    """The real one."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(tz=UTC)

    def monotonic(self) -> float:
        """Return seconds since some moment [s]."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait [s]."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """How patient the engine is.

    Args:
        tries: How often a call is sent at most when it was throttled or nobody knows what came of it [-].
        first_wait_s, longest_wait_s: Between tries: doubled each time, with jitter, up to the longest [s].
        poll_s: Between looks at something that takes its time, after the first few [s].
        ending_s: How long a machine may take to be gone once it was told to end [s].
    """

    tries: int = 6
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    poll_s: float = 5.0
    ending_s: float = 600.0

    def wait_s(self, tries: int) -> float:
        """Return how long to wait after so many tries: exponential backoff with full jitter [s].

        M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015, "full jitter".
        """
        ceiling = min(self.longest_wait_s, self.first_wait_s * 2.0**tries)
        return random.uniform(0.5, 1.0) * ceiling

    def poll_delay_s(self, looks: int) -> float:
        """Return how long to wait after so many looks at something that takes its time [s]."""
        return float(min(self.poll_s, 0.1 * 2.0**looks))


class ServerDateClock:
    """Knows nothing before the first answer."""

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None

    def note(self, date: str | None) -> None:
        """Take the time from an answer's `Date`; an answer without one changes nothing."""
        if date:
            self._seen = (parsedate_to_datetime(date).astimezone(UTC), time.monotonic())

    def now(self) -> datetime | None:
        """Return the cloud's time; None before the first answer."""
        if self._seen is None:
            return None
        at, since = self._seen
        return at + timedelta(seconds=time.monotonic() - since)

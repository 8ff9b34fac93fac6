"""A cloud's clock: the `Date` of its last answer, moved on by a steady clock of this computer."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

__all__ = ["CloudTime"]


class CloudTime:
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

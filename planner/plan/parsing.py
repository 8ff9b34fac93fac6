"""Deadlines, budgets and numbers of devices as people give them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from ..errors import UsageError

__all__ = ["parse_duration_s", "parse_seconds_until", "require_positive"]

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration_s(text: str, *, flag: str = "") -> float:
    """Return a duration like `90s`, `15m`, `12h`, `1h30m` or `2d` [s]; UsageError for anything else.

    Args:
        text: As it was given.
        flag: How the user gave it.

    Example:
        >>> parse_duration_s("1h30m"), parse_duration_s("2d")
        (5400.0, 172800.0)
    """
    compact = text.strip().lower()
    if not _DURATION.fullmatch(compact):
        given = f"{flag} {text}".strip()
        raise UsageError(f"`{given}` is no duration", hint="write s, m, h or d behind the number: `12h`")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))


def require_positive(value: float, *, what: str, example: str) -> None:
    """Raise UsageError unless a number is positive and finite.

    Args:
        value: The number.
        what: How the user gave it: the flag.
        example: A value that would do.
    """
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{what} must be above zero, not {value:g}", hint=f"try `{what} {example}`")


def parse_seconds_until(text: str, *, now: datetime) -> float:
    """Return how long it is until a moment like `Mon 08:00`, `18:30` or `2026-12-01 09:00` [s].

    Args:
        text: A weekday and a time, a time (today's or tomorrow's), or a date and a time; in local time.
        now: The moment from which to count.

    Raises:
        UsageError: No such moment, or one that has passed.

    Example:
        >>> parse_seconds_until("Mon 08:00", now=datetime(2026, 11, 20, 20, 0)) / 3600   # a Friday evening
        60.0
    """
    moment = _moment(text.strip(), now)
    if moment is None:
        raise UsageError(f"`--by {text}` is no moment", hint='as in `--by "Mon 08:00"` or `--by 18:30`')
    if moment <= now:
        raise UsageError(f"`--by {text}` has passed", hint="give a moment to come")
    return (moment - now).total_seconds()


def _moment(text: str, now: datetime) -> datetime | None:
    """Return the next moment that a text means; None when it means none."""
    *day, clock = text.split()
    try:
        time = datetime.strptime(clock, "%H:%M").time()
        today = datetime.combine(now.date(), time)
        if not day:
            return today if today > now else today + timedelta(days=1)
        if len(day) == 1 and day[0][:3].lower() in _WEEKDAYS:
            ahead = (_WEEKDAYS.index(day[0][:3].lower()) - now.weekday()) % len(_WEEKDAYS)
            moment = today + timedelta(days=ahead)
            return moment if moment > now else moment + timedelta(days=len(_WEEKDAYS))
        return datetime.strptime(text, "%Y-%m-%d %H:%M")
    except ValueError:
        return None

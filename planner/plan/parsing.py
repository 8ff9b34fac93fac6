"""Parsing of durations and points in time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import UsageError
from ..limits import MAX_DURATION_S

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration_s(text: str, *, flag: str = "") -> float:
    """Parse a duration like `90s`, `15m`, `12h`, `1h30m` or `2d` [s]; UsageError for anything else.

    Args:
        text: Duration as written by the user.
        flag: Flag named in the error message.

    Example:
        >>> parse_duration_s("1h30m"), parse_duration_s("2d")
        (5400.0, 172800.0)
    """
    compact = text.strip().lower()
    given = f"{flag} {text}".strip()
    if not _DURATION.fullmatch(compact):
        raise UsageError(f"`{given}` is not a duration", hint="write s, m, h or d after the number: `12h`")
    duration_s = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))
    if duration_s > MAX_DURATION_S:
        raise UsageError(f"`{given}` is longer than a century", hint="give at most `36500d`")
    return duration_s


def parse_deadline_s(text: str, *, now: datetime) -> float:
    """Parse a duration like `12h`, or a point in time like `Mon 08:00` [s]; UsageError for anything else.

    Args:
        text: Limit as written by the user.
        now: Current local time.
    """
    return parse_seconds_until(text, now=now) if ":" in text else parse_duration_s(text, flag="--deadline")


def parse_seconds_until(text: str, *, now: datetime) -> float:
    """Return the time until a point in time like `Mon 08:00`, `18:30` or `2026-12-01 09:00` [s].

    Args:
        text: Weekday and time, time (of today or tomorrow), or date and time; in local time.
        now: Current local time.

    Raises:
        UsageError: An invalid or past point in time.

    Example:
        >>> parse_seconds_until("Mon 08:00", now=datetime(2026, 11, 20, 20, 0)) / 3600   # a Friday evening
        60.0
    """
    moment = _moment(text.strip(), now)
    if moment is None:
        raise UsageError(
            f"`--deadline {text}` is not a point in time",
            hint='give e.g. `--deadline "Mon 08:00"` or `--deadline 18:30`',
        )
    if moment <= now:
        raise UsageError(f"`--deadline {text}` has passed", hint="give a point in time in the future")
    return (moment - now).total_seconds()


def _moment(text: str, now: datetime) -> datetime | None:
    """Return the next point in time described by a text, or None for an invalid text."""
    *day, clock = text.split() or ("",)
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

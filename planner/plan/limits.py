"""Deadlines, budgets and numbers of devices as people give them."""

from __future__ import annotations

import math
import re

from ..errors import UsageError

__all__ = ["duration_s_of", "require_positive"]

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def duration_s_of(text: str) -> float:
    """Return a duration like `90s`, `15m`, `12h`, `1h30m` or `2d` [s]; UsageError for anything else.

    Example:
        >>> duration_s_of("1h30m"), duration_s_of("2d")
        (5400.0, 172800.0)
    """
    compact = text.strip().lower()
    if not _DURATION.fullmatch(compact):
        raise UsageError(f"`{text}` is no duration", hint="write s, m, h or d behind the number: `12h`")
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

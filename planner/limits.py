"""Largest accepted counts and amounts, checks of numbers that a user gives, and the cores that may be used."""

from __future__ import annotations

import math
import os

from .errors import UsageError

# Far above the largest published runs, and small enough that times and costs stay exact in their units.
MAX_BATCH_SIZE = 10**9
MAX_SAMPLES = 10**15
MAX_EPOCHS = 10**9
MAX_STEPS = 10**12
MAX_TOKENS = 10**15
MAX_DEVICES = 10**5
MAX_RUNS = 10**9
MAX_HOSTS = 10**4
MAX_AMOUNT = 1e12  # dollars, hours, watts, rates
MAX_MINUTES = 10_000.0  # of measurements, a week
MAX_PROCESSES = 100
MAX_DURATION_S = 100 * 365 * 86_400.0  # a century


def count_usable_cores() -> int:
    """Return the logical processors that this process may use [-]."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_positive(value: float, *, what: str, example: str, most: float = MAX_AMOUNT) -> None:
    """Raise UsageError unless a number is positive and at most a limit.

    Args:
        value: Number to check.
        what: Flag named in the error message.
        example: Valid value named in the hint.
        most: Largest accepted value, in the unit of the number.
    """
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{what} must be above zero, not {value:g}", hint=f"try `{what} {example}`")
    _require_at_most(value, what=what, example=example, most=most)


def require_not_negative(value: float, *, what: str, example: str, most: float = MAX_AMOUNT) -> None:
    """Raise UsageError unless a number is zero or positive, and at most a limit; see `require_positive`."""
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{what} must be at least zero, not {value:g}", hint=f"try `{what} {example}`")
    _require_at_most(value, what=what, example=example, most=most)


def require_count(value: int, *, what: str, most: int, example: str = "1") -> None:
    """Raise UsageError unless a value is a whole number from 1 to a limit; see `require_positive`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"{what} must be a whole number of at least 1, not {value}", hint=f"try `{what} {example}`"
        )
    _require_at_most(value, what=what, example=example, most=most)


def _require_at_most(value: float, *, what: str, example: str, most: float) -> None:
    if value > most:
        raise UsageError(
            f"{what} must be at most {_format(most)}, not {_format(value)}", hint=f"try `{what} {example}`"
        )


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"

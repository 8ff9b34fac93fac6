"""Largest accepted counts and amounts, and checks of numbers that a user gives; usable cores."""

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
    """Return the number of logical cores that this process may use [-]; all where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_positive(value: float, *, what: str, example: str, most: float = MAX_AMOUNT) -> None:
    """Raise UsageError, which names a flag and an example, unless a number is positive and at most a limit."""
    is_valid = math.isfinite(value) and value > 0
    _require(is_valid, value, f"above zero, not {value:g}", what=what, example=example, most=most)


def require_not_negative(value: float, *, what: str, example: str, most: float = MAX_AMOUNT) -> None:
    """Raise UsageError unless a number is zero or positive, and at most a limit; see `require_positive`."""
    is_valid = math.isfinite(value) and value >= 0
    _require(is_valid, value, f"at least zero, not {value:g}", what=what, example=example, most=most)


def require_count(value: int, *, what: str, most: int, example: str = "1") -> None:
    """Raise UsageError unless a value is a whole number from 1 to a limit; see `require_positive`."""
    is_valid = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    wanted = f"a whole number of at least 1, not {value}"
    _require(is_valid, value, wanted, what=what, example=example, most=most)


def _require(is_valid: bool, value: float, wanted: str, *, what: str, example: str, most: float) -> None:
    if not is_valid or value > most:
        said = wanted if not is_valid else f"at most {_format(most)}, not {_format(value)}"
        raise UsageError(f"{what} must be {said}", hint=f"try `{what} {example}`")


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"

"""Statistics of window times: median, its confidence interval, and drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..profile_schema import TimingSummary

__all__ = [
    "CONFIDENCE",
    "MIN_WINDOWS",
    "WindowStatistics",
    "compute_drift",
    "compute_median_interval",
    "is_settled",
    "summarize",
]

CONFIDENCE = 0.95
MIN_WINDOWS = 6  # with five values, even their range covers the median with less than 95 %
HALVES = 2


def compute_median_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return a distribution-free interval that covers the median with at least the given probability.

    The bounds are order statistics, chosen by the binomial distribution of the number of values below the
    median (Conover, 1999, "Practical Nonparametric Statistics", 3rd ed., ISBN 0471160687, section 3.2).
    Values are assumed independent: the interval is too narrow if slow and fast periods alternate, which
    `drift_of` detects. None if there are too few values.

    Example:
        >>> compute_median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        (1.0, 6.0)
        >>> compute_median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
        True
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0.0, -1
    while below + 1 < count / 2:
        outside += 2.0 * _compute_binomial_half(count, below + 1)
        if outside > 1.0 - confidence:
            break
        below += 1
    if below < 0:
        return None
    return ordered[below], ordered[count - 1 - below]


def _compute_binomial_half(count: int, successes: int) -> float:
    """Return the binomial probability C(count, successes) / 2^count, computed with log-gamma for speed."""
    ways_log = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(ways_log - count * math.log(2.0))


def compute_drift(values: Sequence[float]) -> float:
    """Return the median of the second half over that of the first, minus 1 [-]; 0 for fewer than four values.

    Example:
        >>> round(compute_drift([1.0, 1.0, 1.0, 1.1, 1.1, 1.1]), 6)
        0.1
    """
    half = len(values) // HALVES
    if half < HALVES:
        return 0.0
    return statistics.median(values[-half:]) / statistics.median(values[:half]) - 1.0


def is_settled(values: Sequence[float], *, last: int, within: float) -> bool:
    """Return whether the last values are steady: their halves agree in the median, and the last two are no
    outliers.

    Args:
        values: Times in order of measurement.
        last: Number of values considered; even [-].
        within: Largest relative difference of the halves' medians; twice that for single values [-].

    Example:
        >>> is_settled([9.0, 1.0, 1.01, 1.0, 1.02], last=4, within=0.03)
        True
        >>> is_settled([9.0, 3.0, 1.0, 1.0], last=4, within=0.03)
        False
    """
    tail = values[-last:]
    if len(tail) < last:
        return False
    middle = statistics.median(tail)
    return abs(compute_drift(tail)) <= within and all(
        abs(v - middle) <= 2 * within * middle for v in tail[-2:]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatistics:
    """Statistics of window times.

    Args:
        median_s: Median over windows [s].
        low_s, high_s: 95 % interval of the median; None for fewer than six windows [s].
        mean_s: Total time of all windows over their steps [s].
        spread: Interquartile range over the median; None for fewer than two windows [-].
        drift: Median of the second half over that of the first, minus 1 [-].
        windows: Number of windows [-].
    """

    median_s: float
    low_s: float | None
    high_s: float | None
    mean_s: float
    spread: float | None
    drift: float
    windows: int

    @property
    def width(self) -> float | None:
        """Width of the interval over the median [-]; None without an interval."""
        if self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / self.median_s

    def to_json(self) -> TimingSummary:
        """Return plain JSON types, including the width."""
        return {
            "median_s": self.median_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "mean_s": self.mean_s,
            "spread": self.spread,
            "drift": self.drift,
            "windows": self.windows,
            "width": self.width,
        }


def summarize(steps_s: Sequence[float], counts: Sequence[int]) -> WindowStatistics:
    """Summarize the step times of one or more windows.

    Args:
        steps_s: Mean step time of each window [s].
        counts: Steps of each window [-].
    """
    interval = compute_median_interval(steps_s)
    middle = statistics.median(steps_s)
    spread = None
    if len(steps_s) > 1:
        low, _, high = statistics.quantiles(steps_s, n=4)
        spread = (high - low) / middle
    return WindowStatistics(
        median_s=middle,
        low_s=interval[0] if interval else None,
        high_s=interval[1] if interval else None,
        mean_s=sum(s * n for s, n in zip(steps_s, counts, strict=True)) / sum(counts),
        spread=spread,
        drift=compute_drift(steps_s),
        windows=len(steps_s),
    )

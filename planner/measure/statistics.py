"""What a list of window times says: the median, how sure it is, and whether it holds still."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CONFIDENCE", "FEWEST_WINDOWS", "Summary", "drift_of", "median_interval", "settled", "summarize"]

CONFIDENCE = 0.95
FEWEST_WINDOWS = 6  # with five values not even the whole range covers the median with 95 %
HALVES = 2


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return an interval that covers the median with at least that probability, whatever the distribution.

    The ends are order statistics, chosen by the binomial distribution of how many values lie below the median
    (Conover, 1999, "Practical Nonparametric Statistics", 3rd ed., ISBN 0471160687, section 3.2). Values are taken
    as independent: it is too narrow when slow and fast spells alternate, which `drift_of` looks for. None when
    there are too few values.

    Example:
        >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
        ((1.0, 6.0), None)
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0.0, -1
    while below + 1 < count / 2:
        outside += 2.0 * _binomial_half(count, below + 1)
        if outside > 1.0 - confidence:
            break
        below += 1
    if below < 0:
        return None
    return ordered[below], ordered[count - 1 - below]


def _binomial_half(count: int, successes: int) -> float:
    """Return the probability of so many heads in so many throws; without large integers, it is asked for often."""
    ways_log = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(ways_log - count * math.log(2.0))


def drift_of(values: Sequence[float]) -> float:
    """Return the median of the second half over that of the first, minus one [-]; 0 for fewer than four values.

    Example:
        >>> round(drift_of([1.0, 1.0, 1.0, 1.1, 1.1, 1.1]), 6)
        0.1
    """
    half = len(values) // HALVES
    if half < HALVES:
        return 0.0
    return statistics.median(values[-half:]) / statistics.median(values[:half]) - 1.0


def settled(values: Sequence[float], *, last: int, within: float) -> bool:
    """Return whether the last values hold still: their two halves agree in the median, and none is far off.

    Args:
        values: Times in the order in which they were measured.
        last: How many have to agree; even [-].
        within: Largest distance of the halves' medians, over the median; single values may be twice as far [-].

    Example:
        >>> settled([9.0, 1.0, 1.01, 1.0, 1.02], last=4, within=0.03)
        True
        >>> settled([9.0, 3.0, 1.0, 1.0], last=4, within=0.03)
        False
    """
    tail = values[-last:]
    if len(tail) < last:
        return False
    middle = statistics.median(tail)
    return abs(drift_of(tail)) <= within and all(abs(v - middle) <= 2 * within * middle for v in tail[-2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What windows say of a step.

    Args:
        median_s: Of the windows [s].
        low_s, high_s: 95 % interval of the median; None with fewer than six windows [s].
        mean_s: All steps of all windows over all their time [s].
        spread: Distance between the quartiles over the median; None with fewer than two windows [-].
        drift: Second half over first half, minus one [-].
        windows: How many [-].
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
        """Width of the interval over the median [-]; None when there is no interval."""
        if self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / self.median_s

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, the width included."""
        names = ("median_s", "low_s", "high_s", "mean_s", "spread", "drift", "windows", "width")
        return {name: getattr(self, name) for name in names}


def summarize(steps_s: Sequence[float], counts: Sequence[int]) -> Summary:
    """Summarize the time of a step in each window; there must be at least one.

    Args:
        steps_s: Time of a step, averaged over each window [s].
        counts: Steps of each window [-].
    """
    interval = median_interval(steps_s)
    middle = statistics.median(steps_s)
    spread = None
    if len(steps_s) > 1:
        low, _, high = statistics.quantiles(steps_s, n=4)
        spread = (high - low) / middle
    return Summary(
        median_s=middle,
        low_s=interval[0] if interval else None,
        high_s=interval[1] if interval else None,
        mean_s=sum(s * n for s, n in zip(steps_s, counts, strict=True)) / sum(counts),
        spread=spread,
        drift=drift_of(steps_s),
        windows=len(steps_s),
    )

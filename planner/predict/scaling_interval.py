"""80 % intervals for the ratio of steps on several devices and on one, from few sources that differ much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .interval import LEVEL, weighted_quantile

__all__ = ["nested_interval", "spread"]

TAIL = (1.0 - LEVEL) / 2.0
TAILS = tuple(TAIL * step / 20.0 for step in range(20, -1, -1))


def spread(devices: float) -> float:
    """Return how much wider than on a few devices the interval is, in log units: with the doublings beyond four.

    Example:
        >>> spread(2), spread(4), spread(16)
        (1.0, 1.0, 2.0)
    """
    return max(1.0, math.log2(devices) / 2.0)


def _ends(logs: Sequence[float], groups: Sequence[str], tail: float) -> tuple[float, float]:
    sizes = Counter(groups)
    weights = [1.0 / sizes[group] for group in groups]
    low = -weighted_quantile([-log for log in logs], weights, 1.0 - tail)
    return min(low, 0.0), max(weighted_quantile(logs, weights, 1.0 - tail), 0.0)


def _coverage(logs: Sequence[float], groups: Sequence[str], tail: float) -> float:
    """Return the mean over groups of the share that the interval of the other groups holds."""
    shares = []
    for held in sorted(set(groups)):
        kept = [(log, group) for log, group in zip(logs, groups, strict=True) if group != held]
        low, high = _ends([log for log, _ in kept], [group for _, group in kept], tail)
        inside = [low <= log <= high for log, group in zip(logs, groups, strict=True) if group == held]
        shares.append(sum(inside) / len(inside))
    return sum(shares) / len(shares)


def nested_interval(log_ratios: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """Return the interval of log ratios that holds 80 % of a group that is not among these.

    Percentiles of a handful of groups are too narrow for the next one. Each group in turn is left out once more,
    and the narrowest of the percentiles is taken at which the groups left out are held 80 % of the time, on
    average over groups (the idea of cross-conformal prediction: Vovk, 2015, "Cross-conformal predictors", Ann.
    Math. Artif. Intell. 74, doi:10.1007/s10472-013-9368-4). One group alone gives its own percentiles.

    Args:
        log_ratios: log(measured / predicted), divided by `spread` of its devices [-].
        groups: Which group each belongs to; all groups weigh the same.
    """
    if len(set(groups)) == 1:
        return _ends(log_ratios, groups, TAIL)
    enough = (tail for tail in TAILS if _coverage(log_ratios, groups, tail) >= LEVEL)
    return _ends(log_ratios, groups, next(enough, 0.0))

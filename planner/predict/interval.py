"""80 % prediction intervals from the errors made on models that a fit had not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..units import Interval

__all__ = ["LEVEL", "around", "weighted_quantile"]

LEVEL = 0.8


def weighted_quantile(values: Sequence[float], weights: Sequence[float], probability: float) -> float:
    """Return the smallest value below which at least that share of the weight lies.

    The conservative (outer) side is taken, as split conformal prediction does (Lei et al., 2018,
    "Distribution-Free Predictive Inference for Regression", JASA 113, doi:10.1080/01621459.2017.1307116).

    Args:
        values: Not empty; any order.
        weights: Positive, one a value; any scale.
        probability: 0..1.

    Example:
        >>> weighted_quantile([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], 0.5)
        2.0
    """
    ordered = sorted(zip(values, weights, strict=True))
    target = probability * sum(weights)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= target - 1e-12:
            return value
    return ordered[-1][0]


def equal_weights(groups: Iterable[str]) -> list[float]:
    """Return weights that give every group the same total, however many rows it has."""
    names = list(groups)
    return [1.0 / names.count(name) for name in names]


def around(mid_s: float, log_low: float, log_high: float) -> Interval:
    """Return the interval whose ends are off by log ratios of measured to predicted, ``mid_s`` always inside."""
    return Interval(
        low=mid_s * math.exp(min(log_low, 0.0)), mid=mid_s, high=mid_s * math.exp(max(log_high, 0.0))
    )

"""Similarity of two steps by their time breakdown, which weights calibration residuals."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..kernels.table import CATEGORIES, CONTRACTIONS

__all__ = ["TimeBreakdown", "compute_time_breakdown", "similarity_weight"]

_DOT = CATEGORIES.index("dot")
# Length scale of the similarity of time breakdowns. Of seven values from 0.15 to 1 it has the lowest interval
# score on held-out architectures, 9 % below that of equal weights (benchmarks/similarity_distance.py). On held-out
# accelerators the score is equal, 15 % lower for Transformers; on held-out publishers it does not improve.
DISTANCE = 0.25


class TimeBreakdown(NamedTuple):
    """Shares of the time of a modelled step, with sum 1 [-].

    Args:
        convolutions: Convolutions.
        products: Matrix products.
        traffic: Other kernels, bound by memory.
        waiting: Remainder: host, dispatch and input.
    """

    convolutions: float
    products: float
    traffic: float
    waiting: float


def compute_time_breakdown(category: Any, kernels_s: Any, *, step_s: float) -> TimeBreakdown:
    """Return the time breakdown of a step.

    Args:
        category: Category of each kernel as index into `kernels.table.CATEGORIES`, array of [kernels].
        kernels_s: Total time of all launches of each kernel, array of [kernels] [s].
        step_s: Time of the step [s].
    """
    is_product, is_rest = category == _DOT, category >= len(CONTRACTIONS)
    of_device_s = [float(kernels_s[of].sum()) for of in (~is_product & ~is_rest, is_product, is_rest)]
    all_s = max(step_s, sum(of_device_s))
    convolutions, products, traffic = (part_s / all_s for part_s in of_device_s)
    return TimeBreakdown(convolutions, products, traffic, waiting=1.0 - sum(of_device_s) / all_s)


def similarity_weight(one: TimeBreakdown, other: TimeBreakdown) -> float:
    """Return the weight exp(-(d / D)^2 / 2) of a residual: d is the distance of two breakdowns, D `DISTANCE` [-].

    Example:
        >>> same = TimeBreakdown(0.5, 0.5, 0.0, 0.0)
        >>> similarity_weight(same, same), round(similarity_weight(same, TimeBreakdown(1.0, 0.0, 0.0, 0.0)), 3)
        (1.0, 0.018)
    """
    apart = math.dist(one, other) / DISTANCE
    return math.exp(-0.5 * apart**2)

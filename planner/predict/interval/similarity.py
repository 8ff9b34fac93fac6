"""How alike two steps are by what their time goes into: errors on steps alike tell more of the next one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..kernels.table import CATEGORIES, CONTRACTIONS

__all__ = ["TimeBreakdown", "compute_time_breakdown", "similarity_weight"]

_DOT = CATEGORIES.index("dot")
# How far apart two makeups are before their errors say little of each other. Of seven distances from 0.15 to 1
# this one gives architectures that are left out the least interval score, 9 % below that of intervals that do not
# look at makeups (benchmarks/likeness_distance.py). With accelerators left out it is the same, and 15 % below for
# Transformers; publishers that are left out gain nothing.
DISTANCE = 0.25


class TimeBreakdown(NamedTuple):
    """Shares of a modelled step, adding up to 1 [-].

    Args:
        convolutions: Time of convolutions.
        products: Time of matrix products.
        traffic: Time of everything else that the device does, which memory bounds.
        waiting: What remains: for the host, its dispatch, and input.
    """

    convolutions: float
    products: float
    traffic: float
    waiting: float


def compute_time_breakdown(category: Any, kernels_s: Any, *, step_s: float) -> TimeBreakdown:
    """Return what a step's time goes into.

    Args:
        category: Of each kernel, codes into `kernels.CATEGORIES`, array of [kernels].
        kernels_s: What each takes, all its launches together, array of [kernels] [s].
        step_s: What the step takes [s].
    """
    is_product, is_rest = category == _DOT, category >= len(CONTRACTIONS)
    of_device_s = [float(kernels_s[of].sum()) for of in (~is_product & ~is_rest, is_product, is_rest)]
    all_s = max(step_s, sum(of_device_s))
    convolutions, products, traffic = (part_s / all_s for part_s in of_device_s)
    return TimeBreakdown(convolutions, products, traffic, waiting=1.0 - sum(of_device_s) / all_s)


def similarity_weight(one: TimeBreakdown, other: TimeBreakdown) -> float:
    """Return the weight of an error on one step for the interval of another, 0..1 [-].

    Example:
        >>> same = TimeBreakdown(0.5, 0.5, 0.0, 0.0)
        >>> similarity_weight(same, same), round(similarity_weight(same, TimeBreakdown(1.0, 0.0, 0.0, 0.0)), 3)
        (1.0, 0.018)
    """
    apart = math.dist(one, other) / DISTANCE
    return math.exp(-0.5 * apart**2)

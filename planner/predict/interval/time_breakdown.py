"""Time breakdown of a step: features of its prediction interval."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..kernels.table import CONTRACTIONS, find_products


class TimeBreakdown(NamedTuple):
    """Shares of the time of a modelled step, with sum 1 [-].

    Args:
        convolutions: Convolutions.
        products: Matrix products and fused attention.
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
    is_rest = category >= len(CONTRACTIONS)
    is_product = find_products(category)
    of_device_s = [float(kernels_s[of].sum()) for of in (~is_product & ~is_rest, is_product, is_rest)]
    all_s = max(step_s, sum(of_device_s))
    convolutions, products, traffic = (part_s / all_s for part_s in of_device_s)
    return TimeBreakdown(convolutions, products, traffic, waiting=1.0 - sum(of_device_s) / all_s)

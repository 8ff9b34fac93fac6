"""Search for the largest batch that fits on each offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..result.best_batch import BestBatch

if TYPE_CHECKING:
    from ..result.offer_estimate import OfferEstimate


def add_best_batch(
    offers: Sequence[OfferEstimate], sizes: Sequence[int], estimated: Callable[[int], Sequence[OfferEstimate]]
) -> list[OfferEstimate]:
    """Add to each offer the largest batch that fits with a margin and is not slower per sample.

    Args:
        offers: Estimates at the user's batch size.
        sizes: Batch sizes to try [-].
        estimated: Function that estimates the same offers at another batch size.
    """
    found: dict[int, BestBatch] = {}
    own = {id(one.offer): one for one in offers}
    for size in sorted(sizes):
        for other in estimated(size):
            best = _better(own[id(other.offer)], other, size)
            if best is not None:
                found[id(other.offer)] = best
    return [replace(one, best_batch=found.get(id(one.offer))) for one in offers]


def _better(one: OfferEstimate, other: OfferEstimate, size: int) -> BestBatch | None:
    """Return the run at another batch size if it fits and is not slower per sample, else None."""
    step_s, own_step_s = other.device_estimate.step_time_s, one.device_estimate.step_time_s
    if step_s is None or other.device_estimate.is_ruled_out or other.device_estimate.memory.verdict != "fits":
        return None
    speedup = None
    if own_step_s is not None and one.device_estimate.memory.fits:
        rate = other.device_estimate.run.global_batch_size / step_s.mid
        speedup = rate * own_step_s.mid / one.device_estimate.run.global_batch_size
        if (
            speedup < 1.0
            or other.device_estimate.run.global_batch_size <= one.device_estimate.run.global_batch_size
        ):
            return None
    return BestBatch(
        batch_size=size,
        step_time_s=step_s,
        run_time_s=other.run_time_s,
        speedup=speedup,
        cost_usd=None if other.bill is None else other.bill.total_json(),
    )

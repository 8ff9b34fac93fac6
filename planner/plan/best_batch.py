"""The same run at the largest batch that fits: a second plan beside the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..units import Interval

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .offer_estimate import OfferEstimate

__all__ = ["BestBatch", "at_batch_size", "batch_sizes_to_try", "ends_to_compile", "with_best_batch"]

MOST_LARGER, MOST_SMALLER = 5, 3  # batch sizes that are traced: each costs seconds [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """A run at another batch size; the samples and epochs are the same, and what is learnt may not be.

    Args:
        batch_size: Per device [-].
        step_time_s: Of one step [s].
        run_time_s: Of the whole run; None when its length is unknown [s].
        cost_usd: Low, mid and high as text; None without a price [USD].
        speedup: Samples a second over those at the user's batch size; None where that does not fit [-].
    """

    batch_size: int
    step_time_s: Interval
    run_time_s: Interval | None
    cost_usd: dict[str, str] | None
    speedup: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `offers[].best_batch`."""
        return {
            "batch_size": self.batch_size,
            "step_time_s": self.step_time_s.to_json(),
            "run_time_s": None if self.run_time_s is None else self.run_time_s.to_json(),
            "cost_usd": self.cost_usd,
            "speedup": self.speedup,
        }


def batch_sizes_to_try(largest: Iterable[int | None], *, own: int) -> list[int]:
    """Return doublings and halvings of a batch size that are worth a look.

    Args:
        largest: What fits on each kind of device; None: unknown [-].
        own: The user's batch size [-].

    Example:
        >>> batch_sizes_to_try([150, 20, None], own=32)
        [4, 8, 16, 64, 128]
    """
    known = [size for size in largest if size]
    most, least = max(known, default=own), min(known, default=own)
    larger = [own * 2**n for n in range(1, MOST_LARGER + 1) if own * 2**n <= most]
    smaller = [own // 2**n for n in range(1, MOST_SMALLER + 1) if least < own and own >= 2**n]
    return sorted({*smaller, *larger})


def ends_to_compile(
    offers: Sequence[OfferEstimate], sizes: Sequence[int], resized: Callable[[int], Workload], *, own: int
) -> dict[str, list[Workload]]:
    """Return the workloads at the ends of what is tried on each accelerator: between two, a line is enough.

    Args:
        offers: At the user's batch size.
        sizes: Batch sizes to try [-].
        resized: Gives the workload at another batch size.
        own: The user's batch size, which was compiled [-].
    """
    largest: dict[str, int] = {}
    for one in offers:
        known = one.projection.memory.largest_batch_size
        if known is not None:
            largest[one.offer.accelerator] = max(known, largest.get(one.offer.accelerator, 0))
    wanted = {}
    for name, most in largest.items():
        fitting = [own, *(size for size in sizes if size <= most)]
        wanted[name] = [resized(size) for size in sorted({min(fitting), max(fitting)} - {own})]
    return wanted


def at_batch_size(workload: Workload, own: Workload) -> Workload:
    """Return a workload at another batch size with as many samples to process as the user's own."""
    if own.steps is None or (own.samples is not None and own.epochs is not None):
        return replace(workload, steps=None, samples=own.samples, epochs=own.epochs)
    return replace(workload, steps=math.ceil(own.steps * own.batch_size / workload.batch_size))


def with_best_batch(
    offers: Sequence[OfferEstimate], sizes: Sequence[int], estimated: Callable[[int], Sequence[OfferEstimate]]
) -> list[OfferEstimate]:
    """Return the offers, each with the largest batch that fits safely and is no slower a sample.

    Args:
        offers: At the user's batch size.
        sizes: Batch sizes to try.
        estimated: Gives the same offers at another batch size.
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
    """Return the plan at another batch size when it is worth a look, else None."""
    step_s, own_step_s = other.projection.step_time_s, one.projection.step_time_s
    if step_s is None or other.projection.is_ruled_out or other.projection.memory.verdict != "fits":
        return None
    speedup = None
    if own_step_s is not None and one.projection.memory.fits:
        rate = other.projection.run.global_batch_size / step_s.mid
        speedup = rate * own_step_s.mid / one.projection.run.global_batch_size
        if speedup < 1.0 or other.projection.run.global_batch_size <= one.projection.run.global_batch_size:
            return None
    return BestBatch(
        batch_size=size, step_time_s=step_s, run_time_s=other.run_time_s, speedup=speedup,
        cost_usd=None if other.bill is None else other.bill.total_json(),
    )  # fmt: skip

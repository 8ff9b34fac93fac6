"""Estimate of the same run at the largest batch that fits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...units import Interval

if TYPE_CHECKING:
    from ...workload.model import Workload

MOST_LARGER, MOST_SMALLER = 5, 3  # batch sizes to trace; each takes seconds [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """A run at another batch size with the same samples and epochs, an entry `offers[].best_batch`.

    Convergence may differ.

    Args:
        batch_size: Samples per device [-].
        step_time_s: Time of one step [s].
        run_time_s: Time of the whole run; None if its length is unknown [s].
        cost_usd: Low, mid and high as text; None without a price [USD].
        speedup: Throughput relative to the user's batch size; None if that does not fit [-].
    """

    batch_size: int
    step_time_s: Interval
    run_time_s: Interval | None
    cost_usd: dict[str, str] | None
    speedup: float | None


def choose_batch_sizes(largest: Iterable[int | None], *, own: int) -> list[int]:
    """Return the doublings and halvings of a batch size to try.

    Args:
        largest: Largest batch size that fits on each kind of device; None if unknown [-].
        own: The user's batch size [-].

    Example:
        >>> choose_batch_sizes([150, 20, None], own=32)
        [4, 8, 16, 64, 128]
    """
    known = [size for size in largest if size]
    most, least = max(known, default=own), min(known, default=own)
    larger = [own * 2**n for n in range(1, MOST_LARGER + 1) if own * 2**n <= most]
    smaller = [own // 2**n for n in range(1, MOST_SMALLER + 1) if least < own and own >= 2**n]
    return sorted({*smaller, *larger})


def with_run_length_of(workload: Workload, own: Workload) -> Workload:
    """Give a workload at another batch size the same number of samples to process as the user's own."""
    if own.further and len(own.further) == len(workload.further):
        pairs = zip(workload.further, own.further, strict=True)
        workload = replace(workload, further=tuple(with_run_length_of(a, b) for a, b in pairs))
    if own.steps is None or (own.samples is not None and own.epochs is not None):
        return replace(workload, steps=None, samples=own.samples, epochs=own.epochs)
    return replace(workload, steps=math.ceil(own.steps * own.batch_size / workload.batch_size))

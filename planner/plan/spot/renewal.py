"""A run on machines whose lives follow any law: exact recursions over the segments that are left."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .checkpoints import RunMoments, SegmentedRun, compute_exponential_moments
from .lifetime_distributions import Exponential, LifetimeDistribution

__all__ = ["MOST_SEGMENTS", "compute_renewal_moments", "compute_run_moments"]

# Beyond this many segments, mean and variance go on as straight lines (elementary renewal theorem).
MOST_SEGMENTS = 64


def compute_run_moments(run: SegmentedRun, law: LifetimeDistribution) -> RunMoments:
    """Return mean and variance of a run: in closed form where lives have no memory, else by recursion.

    Args:
        run: The segments.
        law: Of the machines' lives.
    """
    if isinstance(law, Exponential):
        return compute_exponential_moments(run, mean_life_s=law.mean_s)
    return compute_renewal_moments(run, law)


def compute_renewal_moments(run: SegmentedRun, law: LifetimeDistribution) -> RunMoments:
    """Return mean and variance of a run on machines whose lives follow a law, each life starting anew.

    With j segments left, a machine that restarts for r and lives X completes k = floor((X - r) / s) of them and
    leaves j - k to the next. Conditioning on X gives a recursion in j for the first and second moment. The first
    machine needs no restart: its start belongs to the run itself.

    Args:
        run: The segments.
        law: Of the machines' lives.
    """
    if run.count > MOST_SEGMENTS:
        return _continued(run, law)
    later = _Table(law, run, start_s=run.restart_s)
    first = _Table(law, run, start_s=0.0)
    if later.chance[0] >= 1.0:
        never = math.inf
        return RunMoments(
            billed_s=never, billed_s2=never, wall_s=never, wall_s2=never, preemptions=never, undisturbed=0.0
        )
    billed_s, billed_s2 = _moments(first, later, run.count, wait_s=0.0)
    wall_s, wall_s2 = _moments(first, later, run.count, wait_s=run.wait_s)
    counted_s = wall_s if run.wait_s else _moments(first, later, run.count, wait_s=1.0)[0]
    return RunMoments(
        billed_s=billed_s, billed_s2=billed_s2, wall_s=wall_s, wall_s2=wall_s2,
        preemptions=(counted_s - billed_s) / (run.wait_s or 1.0),
        undisturbed=1.0 - law.cdf(run.undisturbed_s),
    )  # fmt: skip


class _Table:
    """What a machine's life does to the segments that are left: by number of segments completed, k.

    ``chance`` is the probability, ``mean`` and ``square`` the partial moments of the life; ``done`` and ``end``
    are the probability to complete all of j segments, and when.
    """

    def __init__(self, law: LifetimeDistribution, run: SegmentedRun, *, start_s: float) -> None:
        import numpy as np

        ends = [start_s + k * run.segment_s for k in range(1, run.count + 1)]
        self.chance = _steps(np, [law.cdf(end) for end in ends])
        self.mean = _steps(np, [law.partial_mean_s(end) for end in ends])
        self.square = _steps(np, [law.partial_square_s2(end) for end in ends])
        self.done = [1.0 - law.cdf(end) for end in ends]
        self.end = ends


def _steps(np: Any, cumulative: list[float]) -> Any:
    return np.diff(np.array(cumulative), prepend=0.0)


def _moments(first: _Table, later: _Table, count: int, *, wait_s: float) -> tuple[float, float]:
    """Return mean and variance of the time for all segments [s], [s^2]."""
    import numpy as np

    mean, square = np.zeros(count + 1), np.zeros(count + 1)
    for j in range(1, count + 1):
        mean[j], square[j] = _conditioned(later, mean, square, j, wait_s)
        mean[j] /= 1.0 - later.chance[0]
        square[j] += 2.0 * (later.mean[0] + wait_s * later.chance[0]) * mean[j]
        square[j] /= 1.0 - later.chance[0]
    whole, whole2 = _conditioned(first, mean, square, count, wait_s)
    whole += first.chance[0] * mean[count]
    whole2 += 2.0 * (first.mean[0] + wait_s * first.chance[0]) * mean[count]
    whole2 += first.chance[0] * square[count]
    return float(whole), max(0.0, float(whole2 - whole**2))


def _conditioned(table: _Table, mean: Any, square: Any, j: int, wait_s: float) -> tuple[float, float]:
    """Return both moments with j segments left, less what a life that completes none leaves to come."""
    chance, life, life2 = table.chance[:j], table.mean[:j], table.square[:j]
    left, left2 = mean[j:0:-1].copy(), square[j:0:-1].copy()
    left[0] = left2[0] = 0.0
    lost = life + wait_s * chance
    lost2 = life2 + 2.0 * wait_s * life + 2.0 * wait_s**2 * chance
    end, done = table.end[j - 1], table.done[j - 1]
    first = end * done + lost.sum() + chance @ left
    second = end**2 * done + lost2.sum() + 2.0 * (lost @ left) + chance @ left2
    return float(first), float(second)


def _continued(run: SegmentedRun, law: LifetimeDistribution) -> RunMoments:
    """Return the moments of a long run: those of a shorter one, and as much again for each further segment."""
    long = compute_renewal_moments(replace(run, count=MOST_SEGMENTS), law)
    short = compute_renewal_moments(replace(run, count=MOST_SEGMENTS // 2), law)
    further = (run.count - MOST_SEGMENTS) / (MOST_SEGMENTS - MOST_SEGMENTS // 2)

    def on(name: str) -> float:
        last, before = getattr(long, name), getattr(short, name)
        return float(last if math.isinf(last) else last + further * (last - before))

    names = ("billed_s", "billed_s2", "wall_s", "wall_s2", "preemptions")
    return RunMoments(**{name: on(name) for name in names}, undisturbed=1.0 - law.cdf(run.undisturbed_s))

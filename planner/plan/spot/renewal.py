"""Renewal recursion for a run on machines with any lifetime distribution: exact over the remaining segments."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .checkpoints import RunMoments, SegmentedRun, compute_exponential_moments
from .lifetime_distributions import Exponential, LifetimeDistribution

__all__ = ["MOST_SEGMENTS", "compute_renewal_moments", "compute_run_moments"]

# Beyond this number of segments, mean and variance are extrapolated linearly (elementary renewal theorem).
MOST_SEGMENTS = 64


def compute_run_moments(run: SegmentedRun, law: LifetimeDistribution) -> RunMoments:
    """Return mean and variance of a run: in closed form for exponential lifetimes, else by recursion.

    Args:
        run: The segmented run.
        law: Lifetime distribution of the machines.
    """
    if isinstance(law, Exponential):
        return compute_exponential_moments(run, mean_life_s=law.mean_s)
    return compute_renewal_moments(run, law)


def compute_renewal_moments(run: SegmentedRun, law: LifetimeDistribution) -> RunMoments:
    """Return mean and variance of a run on machines with independent lifetimes of any distribution.

    With j segments left, a machine with restart time r and lifetime X completes k = floor((X - r) / s) of them and
    leaves j - k to the next one. Conditioning on X gives a recursion in j for the first and second moment. The
    first machine needs no restart, since its start-up is part of the run.

    Args:
        run: The segmented run.
        law: Lifetime distribution of the machines.
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
        billed_s=billed_s,
        billed_s2=billed_s2,
        wall_s=wall_s,
        wall_s2=wall_s2,
        preemptions=(counted_s - billed_s) / (run.wait_s or 1.0),
        undisturbed=1.0 - law.cdf(run.undisturbed_s),
    )


class _Table:
    """Probabilities and partial moments of a machine's lifetime by number of completed segments, k.

    ``chance`` is the probability of completing exactly k, ``mean`` and ``square`` are the partial moments of the
    lifetime; ``done`` is the probability of completing all of j segments, ``end`` the time needed for that [s].
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
    """Return both moments with j segments left, without the terms of a lifetime that completes no segment."""
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
    """Return the moments of a long run, extrapolated linearly in the number of segments from shorter runs."""
    long = compute_renewal_moments(replace(run, count=MOST_SEGMENTS), law)
    short = compute_renewal_moments(replace(run, count=MOST_SEGMENTS // 2), law)
    further = (run.count - MOST_SEGMENTS) / (MOST_SEGMENTS - MOST_SEGMENTS // 2)

    def on(name: str) -> float:
        last, before = getattr(long, name), getattr(short, name)
        return float(last if math.isinf(last) else last + further * (last - before))

    names = ("billed_s", "billed_s2", "wall_s", "wall_s2", "preemptions")
    return RunMoments(**{name: on(name) for name in names}, undisturbed=1.0 - law.cdf(run.undisturbed_s))

"""Monte Carlo simulation of runs on preemptible machines, a reference for the closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpuplan.plan.preemption import Lifetimes, SegmentedRun

__all__ = ["SimulatedRuns", "draw_lifetimes", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRuns:
    """Statistics of simulated runs.

    Args:
        billed_s, wall_s: Mean billed time and wall time [s].
        billed_p90_s, wall_p90_s: 90th percentiles [s].
        preemptions: Mean number of preemptions [-].
    """

    billed_s: float
    billed_p90_s: float
    wall_s: float
    wall_p90_s: float
    preemptions: float


def simulate(run: SegmentedRun, law: Lifetimes, *, runs: int, seed: int = 0) -> SimulatedRuns:
    """Simulate runs; the same seed gives the same result.

    Args:
        run: The segmented run.
        law: Lifetime distribution of the machines; waits are exponential.
        runs: Number of runs [-].
        seed: Seed of the random numbers.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    left = np.full(runs, run.count)
    billed, waited, preempted = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    start = np.zeros(runs)  # the first machine's start-up is part of the run
    active = np.arange(runs)
    while active.size:
        life = draw_lifetimes(law, generator, active.size)
        needed = start[active] + left[active] * run.segment_s
        ends = life >= needed
        completed = np.maximum(0, np.floor((life - start[active]) / run.segment_s)).astype(int)
        billed[active] += np.where(ends, needed, life)
        left[active] -= np.where(ends, left[active], np.minimum(completed, left[active] - 1))
        active = active[~ends]
        preempted[active] += 1
        waited[active] += generator.exponential(run.wait_s, active.size) if run.wait_s else 0.0
        start[active] = run.restart_s
    wall = billed + waited
    return SimulatedRuns(
        billed_s=float(billed.mean()),
        billed_p90_s=float(np.quantile(billed, 0.9)),
        wall_s=float(wall.mean()),
        wall_p90_s=float(np.quantile(wall, 0.9)),
        preemptions=float(preempted.mean()),
    )


def draw_lifetimes(law: Lifetimes, generator: Any, count: int) -> Any:
    """Draw random lifetimes [s]."""
    if law.median_s is None:
        lives = generator.exponential(law.mean_s, count)
    else:
        lives = generator.lognormal(math.log(law.median_s), law.sigma, count)
    return lives.clip(max=law.longest_s)

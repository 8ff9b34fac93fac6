"""Checkpointed run on preemptible machines: lost work, restarts and waits.

The work is divided into equal segments, each followed by a checkpoint. A preemption loses the work since the last
checkpoint; after a wait, the next machine restarts from it. Machine time is billed, waits are not.
"""

from __future__ import annotations

import math

from ...frozen import Frozen
from .lifetime_distributions import Exponential, LifetimeDistribution

__all__ = [
    "RunMoments",
    "SegmentedRun",
    "checkpoint_interval_s",
    "compute_exponential_moments",
    "compute_p90_s",
    "split_into_segments",
]

P90_Z = 1.2815515655446004


class SegmentedRun(Frozen):
    """A run divided into segments of work.

    Args:
        count: Number of segments [-].
        segment_s: Work of one segment including its checkpoint [s].
        save_s: One checkpoint [s].
        restart_s: Time from the start of a machine until training resumes [s].
        wait_s: Mean time until the next machine is available [s].
    """

    count: int
    segment_s: float
    save_s: float
    restart_s: float
    wait_s: float

    @property
    def undisturbed_s(self) -> float:
        """Time of the run without preemptions, checkpoints included [s]."""
        return self.count * self.segment_s


class RunMoments(Frozen):
    """Mean and variance of a run's billed time (on machines) and wall time (waits included).

    Args:
        billed_s, billed_s2: Mean and variance of the billed time [s], [s^2].
        wall_s, wall_s2: Mean and variance of the wall time [s], [s^2].
        preemptions: Expected number of preemptions [-].
        undisturbed: Probability that the run is never preempted [-].
    """

    billed_s: float
    billed_s2: float
    wall_s: float
    wall_s2: float
    preemptions: float
    undisturbed: float


def checkpoint_interval_s(*, save_s: float, mean_life_s: float) -> float:
    """Return the optimal work between two checkpoints for exponentially distributed lifetimes [s].

    With checkpoint time d, mean lifetime M and x = d / (2 M):
    interval = sqrt(2 d M) (1 + sqrt(x) / 3 + x / 9) - d.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22 (2006) 303-312, doi:10.1016/j.future.2004.11.016, eq. 37; its first term is J. W. Young's
    sqrt(2 d M), Communications of the ACM 17 (1974) 530-531. Valid for d < 2 M; otherwise no interval helps, and
    M is returned.

    Args:
        save_s: One checkpoint [s].
        mean_life_s: Mean lifetime of a machine [s].

    Example:
        >>> round(checkpoint_interval_s(save_s=300.0, mean_life_s=24 * 3600.0) / 60)
        117
    """
    if save_s >= 2.0 * mean_life_s:
        return mean_life_s
    x = save_s / (2.0 * mean_life_s)
    young = math.sqrt(2.0 * save_s * mean_life_s)
    return young * (1.0 + math.sqrt(x) / 3.0 + x / 9.0) - save_s


def split_into_segments(
    *, work_s: float, interval_s: float, save_s: float, restart_s: float, wait_s: float
) -> SegmentedRun:
    """Divide a run into ceil(work / interval) equal segments, each with a checkpoint.

    Args:
        work_s: The run without checkpoints [s].
        interval_s: Longest work between two checkpoints [s].
        save_s, restart_s, wait_s: See `SegmentedRun`.
    """
    count = max(1, math.ceil(work_s / interval_s - 1e-9))
    return SegmentedRun(
        count=count, segment_s=work_s / count + save_s, save_s=save_s, restart_s=restart_s, wait_s=wait_s
    )


def compute_exponential_moments(run: SegmentedRun, *, mean_life_s: float) -> RunMoments:
    """Return mean and variance of a run on machines with exponentially distributed lifetimes, in closed form.

    A segment s is tried once; after a failure, restart and segment (r + s) must complete without preemption. With
    mean lifetime M, the mean billed time of a segment is M exp(r / M) (exp(s / M) - 1) (Daly 2006, eq. 20), and
    the expected number of preemptions is billed time / M (Wald's identity). Variances follow from the same
    renewal argument with exponential waits.

    Args:
        run: The segmented run.
        mean_life_s: Mean lifetime of a machine [s].
    """
    law = Exponential(mean_life_s)
    billed_s, billed_s2 = _segment(law, run.segment_s, run.restart_s, wait_s=0.0)
    wall_s, wall_s2 = _segment(law, run.segment_s, run.restart_s, wait_s=run.wait_s)
    return RunMoments(
        billed_s=run.count * billed_s,
        billed_s2=run.count * billed_s2,
        wall_s=run.count * wall_s,
        wall_s2=run.count * wall_s2,
        preemptions=run.count * billed_s / mean_life_s,
        undisturbed=math.exp(-run.undisturbed_s / mean_life_s),
    )


def _segment(
    law: LifetimeDistribution, segment_s: float, restart_s: float, *, wait_s: float
) -> tuple[float, float]:
    """Return mean and variance of the time until one segment is complete [s], [s^2]."""
    again_s, again_s2 = _until_uninterrupted(law, restart_s + segment_s, wait_s)
    fails = law.cdf(segment_s)
    lost_s, lost_s2 = law.partial_mean_s(segment_s), law.partial_square_s2(segment_s)
    mean_s = (1.0 - fails) * segment_s + lost_s + fails * (wait_s + again_s)
    after_s, after_s2 = wait_s + again_s, 2.0 * wait_s**2 + 2.0 * wait_s * again_s + again_s2
    square_s2 = (1.0 - fails) * segment_s**2 + lost_s2 + 2.0 * lost_s * after_s + fails * after_s2
    return mean_s, max(0.0, square_s2 - mean_s**2)


def _until_uninterrupted(law: LifetimeDistribution, needed_s: float, wait_s: float) -> tuple[float, float]:
    """Return mean and mean square of the time until one machine has run for the needed time [s], [s^2]."""
    fails = law.cdf(needed_s)
    passes = 1.0 - fails
    if passes <= 0.0:
        return math.inf, math.inf
    tries = fails / passes
    lost_s = law.partial_mean_s(needed_s) + fails * wait_s
    lost_s2 = law.partial_square_s2(needed_s) + 2.0 * wait_s * law.partial_mean_s(needed_s)
    lost_s2 += 2.0 * fails * wait_s**2
    mean_failed_s = lost_s / fails if fails else 0.0
    variance_failed = (lost_s2 / fails if fails else 0.0) - mean_failed_s**2
    mean_s = tries * mean_failed_s + needed_s
    variance_s2 = tries * variance_failed + tries * (1.0 + tries) * mean_failed_s**2
    return mean_s, variance_s2 + mean_s**2


def compute_p90_s(*, undisturbed_s: float, mean_s: float, variance_s2: float, undisturbed: float) -> float:
    """Return the 90th percentile of a run's time [s].

    A run is never preempted with probability p and then takes the undisturbed time. Otherwise the additional time
    is assumed to be gamma-distributed with the moments that follow from those of all runs; its quantile at
    1 - 0.1 / (1 - p) follows E. B. Wilson and M. M. Hilferty, PNAS 17 (1931) 684-688.

    Args:
        undisturbed_s: Time of a run without preemptions [s].
        mean_s, variance_s2: Mean and variance over all runs [s], [s^2].
        undisturbed: Probability p that a run is never preempted [-].
    """
    disturbed = 1.0 - undisturbed
    if disturbed <= 0.1 or not math.isfinite(mean_s):
        return undisturbed_s if disturbed <= 0.1 else math.inf
    extra_s = (mean_s - undisturbed_s) / disturbed
    square_s2 = (variance_s2 + (mean_s - undisturbed_s) ** 2) / disturbed
    spread_s2 = max(square_s2 - extra_s**2, 1e-12 * extra_s**2)
    shape = extra_s**2 / spread_s2
    return undisturbed_s + extra_s * _gamma_quantile(shape, 1.0 - 0.1 / disturbed)


def _gamma_quantile(shape: float, probability: float) -> float:
    """Return a quantile of the gamma distribution with mean 1 [-].

    Wilson and Hilferty: (1 - 1 / (9 k) + z / (3 sqrt(k)))^3 with shape k and normal quantile z, for k > 1.
    """
    from statistics import NormalDist

    if shape <= 1.0:  # the cube-root form is inaccurate here; scaled exponential quantile instead
        return -math.log(1.0 - probability) * math.pow(shape, 0.5 * (1.0 - shape))
    z = NormalDist().inv_cdf(probability)
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return math.pow(max(0.0, root), 3.0)

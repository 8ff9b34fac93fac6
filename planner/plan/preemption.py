"""Preemptions on spot machines: lifetimes, checkpoints, lost work and waits, and their forecast for a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..limits import MAX_DURATION_S
from ..records import Frozen
from ..units import GIGA, SECONDS_PER_HOUR, Interval
from .cost_terms import SPOT_KEYS

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..offers.spot import PreemptionData, PreemptionStatistics


_NORMAL = NormalDist()
HEAVY_FROM = 0.95  # of the median of exponential lifetimes: below it, they are taken for log-normal [-]


class Lifetimes(Frozen):
    """Distribution of the lifetimes X of machines.

    Log-normal (many short lifetimes, a few long ones) if the median is below 0.95 ln(2) mean, else exponential
    (constant preemption rate).
    """

    mean_s: float  # mean M without the longest one [s]
    median_s: float | None = None  # median, also without; None if unknown [s]
    longest_s: float | None = None  # lifetime at which the provider ends every machine; None for no limit [s]

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of ln(X): mean / median = exp(sigma^2 / 2); 0 for exponential lifetimes [-]."""
        if self.median_s is None or self.median_s >= HEAVY_FROM * math.log(2.0) * self.mean_s:
            return 0.0
        return math.sqrt(2.0 * math.log(self.mean_s / self.median_s))

    def partial_moments(self, time_s: float) -> tuple[float, float, float]:
        """Return P(X < t), E[X; X < t] and E[X^2; X < t] [-], [s], [s^2].

        Exponential: 1 - e, M - (t + M) e, 2 M^2 - (t^2 + 2 M t + 2 M^2) e; e = exp(-t / M). Log-normal: the moment
        of order n times Phi(ln(t / median) / sigma - n sigma). At the longest lifetime, all others end.
        """
        longest_s = math.inf if self.longest_s is None else self.longest_s
        chance, mean_s, square_s2 = self._unlimited_moments(min(time_s, longest_s))
        if time_s <= longest_s:
            return chance, mean_s, square_s2
        rest = 1.0 - chance
        return 1.0, mean_s + rest * longest_s, square_s2 + rest * longest_s**2

    def _unlimited_moments(self, time_s: float) -> tuple[float, float, float]:
        mean, sigma = self.mean_s, self.sigma
        if not sigma:
            stays = math.exp(-time_s / mean)
            square_s2 = 2.0 * mean**2 - (time_s**2 + 2.0 * mean * time_s + 2.0 * mean**2) * stays
            return -math.expm1(-time_s / mean), mean - (time_s + mean) * stays, square_s2
        if self.median_s is None or time_s <= 0.0:
            return 0.0, 0.0, 0.0
        z = math.log(time_s / self.median_s) / sigma
        whole = (1.0, mean, self.median_s**2 * math.exp(2.0 * sigma**2))
        first, second, third = (moment * _NORMAL.cdf(z - n * sigma) for n, moment in enumerate(whole))
        return first, second, third


def compute_p90_s(*, undisturbed_s: float, mean_s: float, variance_s2: float, undisturbed: float) -> float:
    """Return the 90th percentile of a run's time, of which mean and variance are those over all runs [s].

    A run is never preempted with probability p (`undisturbed`) and then takes the undisturbed time. Otherwise the
    additional time is assumed to be gamma-distributed with the moments that follow from those of all runs; its
    quantile at 1 - 0.1 / (1 - p), relative to the mean, is (1 - 1 / (9 k) + z / (3 sqrt(k)))^3 with shape k and
    normal quantile z, for k > 1: E. B. Wilson and M. M. Hilferty, PNAS 17 (1931) 684-688.
    """
    disturbed = 1.0 - undisturbed
    if disturbed <= 0.1 or not math.isfinite(mean_s):
        return undisturbed_s if disturbed <= 0.1 else math.inf
    extra_s = (mean_s - undisturbed_s) / disturbed
    square_s2 = (variance_s2 + (mean_s - undisturbed_s) ** 2) / disturbed
    spread_s2 = max(square_s2 - extra_s**2, 1e-12 * extra_s**2)
    shape, probability = extra_s**2 / spread_s2, 1.0 - 0.1 / disturbed
    if shape <= 1.0:  # the cube-root form is inaccurate here; scaled exponential quantile instead
        quantile = -math.log(1.0 - probability) * math.pow(shape, 0.5 * (1.0 - shape))
    else:
        root = 1.0 - 1.0 / (9.0 * shape) + _NORMAL.inv_cdf(probability) / (3.0 * math.sqrt(shape))
        quantile = math.pow(max(0.0, root), 3.0)
    return undisturbed_s + extra_s * quantile


# Beyond this number of segments, mean and variance are extrapolated linearly (elementary renewal theorem).
MOST_SEGMENTS = 64


class SegmentedRun(Frozen):
    """A run divided into segments of work."""

    count: int  # number of segments [-]
    segment_s: float  # work of one segment including its checkpoint [s]
    save_s: float  # one checkpoint [s]
    restart_s: float  # time from the start of a machine until training resumes [s]
    wait_s: float  # mean time until the next machine is available [s]

    @property
    def undisturbed_s(self) -> float:
        """Time of the run without preemptions, checkpoints included [s]."""
        return self.count * self.segment_s


class RunMoments(NamedTuple):
    """Mean and variance of a run's billed time (on machines) and wall time (waits included)."""

    billed_s: float  # mean billed time [s]
    billed_s2: float  # its variance [s^2]
    wall_s: float  # mean wall time [s]
    wall_s2: float  # its variance [s^2]
    preemptions: float  # expected number of preemptions [-]
    undisturbed: float  # probability that the run is never preempted [-]


def checkpoint_interval_s(*, save_s: float, mean_life_s: float) -> float:
    """Return the optimal work between two checkpoints for exponentially distributed lifetimes [s].

    With checkpoint time d, mean lifetime M and x = d / (2 M):
    interval = sqrt(2 d M) (1 + sqrt(x) / 3 + x / 9) - d.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22 (2006) 303-312, doi:10.1016/j.future.2004.11.016, eq. 37; its first term is J. W. Young's
    sqrt(2 d M), Communications of the ACM 17 (1974) 530-531. Valid for d < 2 M; otherwise no interval helps, and
    M is returned.

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
    """Divide a run, its checkpoints aside, into ceil(work / interval) equal segments, each with a checkpoint."""
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
    """
    law = Lifetimes(mean_s=mean_life_s)
    both = (_segment(law, run, wait_s) for wait_s in (0.0, run.wait_s))
    (billed_s, billed_s2), (wall_s, wall_s2) = ((run.count * mean, run.count * square) for mean, square in both)
    undisturbed = math.exp(-run.undisturbed_s / mean_life_s)
    return RunMoments(billed_s, billed_s2, wall_s, wall_s2, billed_s / mean_life_s, undisturbed)


def _segment(law: Lifetimes, run: SegmentedRun, wait_s: float) -> tuple[float, float]:
    """Return mean and variance of the time until one segment is complete [s], [s^2]."""
    segment_s = run.segment_s
    again_s, again_s2 = _until_uninterrupted(law, run.restart_s + segment_s, wait_s)
    fails, lost_s, lost_s2 = law.partial_moments(segment_s)
    mean_s = (1.0 - fails) * segment_s + lost_s + fails * (wait_s + again_s)
    after_s, after_s2 = wait_s + again_s, 2.0 * wait_s**2 + 2.0 * wait_s * again_s + again_s2
    square_s2 = (1.0 - fails) * segment_s**2 + lost_s2 + 2.0 * lost_s * after_s + fails * after_s2
    return mean_s, max(0.0, square_s2 - mean_s**2)


def _until_uninterrupted(law: Lifetimes, needed_s: float, wait_s: float) -> tuple[float, float]:
    """Return mean and mean square of the time until one machine has run for the needed time [s], [s^2]."""
    fails, partial_s, partial_s2 = law.partial_moments(needed_s)
    passes = 1.0 - fails
    if passes <= 0.0:
        return math.inf, math.inf
    tries = fails / passes
    lost_s = partial_s + fails * wait_s
    lost_s2 = partial_s2 + 2.0 * wait_s * partial_s + 2.0 * fails * wait_s**2
    mean_failed_s = lost_s / fails if fails else 0.0
    variance_failed = (lost_s2 / fails if fails else 0.0) - mean_failed_s**2
    mean_s = tries * mean_failed_s + needed_s
    variance_s2 = tries * variance_failed + tries * (1.0 + tries) * mean_failed_s**2
    return mean_s, variance_s2 + mean_s**2


def compute_run_moments(run: SegmentedRun, law: Lifetimes) -> RunMoments:
    """Return mean and variance of a run: in closed form for exponential lifetimes, else by recursion."""
    if not law.sigma and law.longest_s is None:
        return compute_exponential_moments(run, mean_life_s=law.mean_s)
    return compute_renewal_moments(run, law)


def compute_renewal_moments(run: SegmentedRun, law: Lifetimes) -> RunMoments:
    """Return mean and variance of a run on machines with independent lifetimes of any distribution.

    With j segments left, a machine with restart time r and lifetime X completes k = floor((X - r) / s) of them and
    leaves j - k to the next one. Conditioning on X gives a recursion in j for the first and second moment. The
    first machine needs no restart, since its start-up is part of the run.
    """
    undisturbed = 1.0 - law.partial_moments(run.undisturbed_s)[0]
    if run.count > MOST_SEGMENTS:
        sizes = (MOST_SEGMENTS, MOST_SEGMENTS // 2)
        long, short = (compute_renewal_moments(replace(run, count=count), law) for count in sizes)
        further = (run.count - MOST_SEGMENTS) / (MOST_SEGMENTS - MOST_SEGMENTS // 2)
        pairs = zip(long, short, strict=True)
        means = (one if math.isinf(one) else one + further * (one - before) for one, before in pairs)
        return RunMoments(*means)._replace(undisturbed=undisturbed)
    later = _Table(law, run, start_s=run.restart_s)
    first = _Table(law, run, start_s=0.0)
    if later.chance[0] >= 1.0:
        return RunMoments(*[math.inf] * 6)._replace(undisturbed=0.0)
    billed_s, billed_s2 = _moments(first, later, run.count, wait_s=0.0)
    wall_s, wall_s2 = _moments(first, later, run.count, wait_s=run.wait_s)
    counted_s = wall_s if run.wait_s else _moments(first, later, run.count, wait_s=1.0)[0]
    preemptions = (counted_s - billed_s) / (run.wait_s or 1.0)
    return RunMoments(billed_s, billed_s2, wall_s, wall_s2, preemptions, undisturbed)


class _Table:
    """Probabilities and partial moments of a machine's lifetime by number of completed segments, k.

    ``chance`` is the probability of completing exactly k, ``mean`` and ``square`` are the partial moments of the
    lifetime; ``done`` is the probability of completing all of j segments, ``end`` the time needed for that [s].
    """

    def __init__(self, law: Lifetimes, run: SegmentedRun, *, start_s: float) -> None:
        import numpy as np

        self.end = [start_s + k * run.segment_s for k in range(1, run.count + 1)]
        below = np.array(list(zip(*map(law.partial_moments, self.end), strict=True)))
        self.chance, self.mean, self.square = np.diff(below, prepend=0.0)
        self.done = 1.0 - below[0]


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


class SpotTerms(Frozen):
    """Properties of spot machines stated by the user; None keeps the catalog's value.

    Raises:
        UsageError: A number that is not positive.
    """

    up_hours: float | None = None  # mean lifetime of a machine [h]
    interval_s: float | None = None  # work between two checkpoints [s]
    save_s: float | None = None  # one checkpoint [s]
    restart_s: float | None = None  # time from the start of a new machine until training resumes [s]

    def __post_init__(self) -> None:
        for key, name in SPOT_KEYS.items():
            value = getattr(self, name)
            most = MAX_DURATION_S / (SECONDS_PER_HOUR if key.endswith("_h") else 1.0)
            if value is not None and not 0 < value <= most:
                raise UsageError(
                    f"`--assume {key}={value:g}` must be above zero and at most a century",
                    hint=f"try `--assume {key}=60`",
                )


class PreemptionForecast(Frozen):
    """Forecast of preemptions during a run on a spot machine."""

    hazard: PreemptionStatistics  # preemption statistics with their source
    run: SegmentedRun  # the run in segments, at the central estimate of its length
    moments: RunMoments  # mean and variance of the run's time
    work_s: float  # central estimate of the run without checkpoints and preemptions [s]

    @property
    def interval_s(self) -> float:
        """Work between two checkpoints [s]."""
        return self.run.segment_s - self.run.save_s

    @cached_property
    def checkpoint_share(self) -> float:
        """Time for checkpoints, as a share of the work [-]."""
        return self.run.count * self.run.save_s / self.work_s

    @cached_property
    def rework_share(self) -> float:
        """Billed time of lost work and restarts, as a share of the work [-]."""
        return max(0.0, self.moments.billed_s - self.run.undisturbed_s) / self.work_s

    @cached_property
    def waiting_share(self) -> float:
        """Unbilled time without a machine, as a share of the work [-]."""
        return max(0.0, self.moments.wall_s - self.moments.billed_s) / self.work_s

    @cached_property
    def wall_p90_s(self) -> float:
        """90th percentile of the wall time [s]."""
        return self._compute_p90_s(self.moments.wall_s, self.moments.wall_s2)

    def _compute_p90_s(self, mean_s: float, variance_s2: float) -> float:
        both = {"undisturbed_s": self.run.undisturbed_s, "undisturbed": self.moments.undisturbed}
        return compute_p90_s(mean_s=mean_s, variance_s2=variance_s2, **both)

    def format_note(self, saves_share: float | None) -> str:
        """Format a sentence on preemptions and the savings against the same machine on demand."""
        count, life = self.moments.preemptions, self.hazard.up_hours
        taken = f"preempted {count:.2g} times on average (mean lifetime {life:.3g} h, {self.hazard.basis})"
        if saves_share is not None and saves_share <= 0.0:
            return f"spot does not pay here: {taken}, and it costs no less than on demand"
        saved = "" if saves_share is None else f", {100 * saves_share:.0f} % cheaper than on demand"
        return f"spot: {taken}{saved}"

    def to_json(self, usd_per_hour: float | None, *, saves_share: float | None) -> dict[str, Any]:
        """Return the entry `offers[].spot`; money at the offer's price, savings against the price on demand."""
        hazard, moments = self.hazard, self.moments
        cost_usd = None
        if usd_per_hour is not None:
            price = usd_per_hour / SECONDS_PER_HOUR
            p90_s = self._compute_p90_s(moments.billed_s, moments.billed_s2)
            cost_usd = {"expected": f"{moments.billed_s * price:.9f}", "p90": f"{p90_s * price:.9f}"}
        return {
            "hours_to_preemption": hazard.up_hours,
            "median_hours_to_preemption": hazard.median_up_hours,
            "hours_to_next_machine": hazard.down_hours,
            "life_hours_max": hazard.life_hours_max,
            "notice_s": hazard.notice_s,
            "basis": hazard.basis,
            "source": hazard.source,
            "checkpoint_interval_s": self.interval_s,
            "checkpoint_s": self.run.save_s,
            "restart_s": self.run.restart_s,
            "preemptions": moments.preemptions,
            "hours": {"expected": moments.wall_s / SECONDS_PER_HOUR, "p90": self.wall_p90_s / SECONDS_PER_HOUR},
            "cost_usd": cost_usd,
            "loses_to_on_demand": None if saves_share is None else saves_share <= 0.0,
            "saves_share": saves_share,
        }


@dataclass
class PreemptionForecaster:
    """Forecaster of preemptions, with a cache by preemption statistics; a checkpoint holds the state."""

    facts: PreemptionData
    state_bytes: float
    terms: SpotTerms = field(default_factory=SpotTerms)
    _known: dict[object, PreemptionForecast | None] = field(default_factory=dict)

    @property
    def save_s(self) -> float:
        """Time of one checkpoint: fixed time + size / write rate, unless stated by the user [s]."""
        cost = self.facts.checkpoint
        return self.terms.save_s or cost.fixed_s + self.state_bytes / (cost.write_gb_per_s * GIGA)

    def forecast(self, offer: Offer, train_time_s: Interval) -> PreemptionForecast | None:
        """Return the forecast for a run on a spot offer, or None if the run cannot finish.

        Several machines stop as soon as one of them is preempted. Preemptions are assumed to be independent, so
        that their rates add: lifetime = lifetime of one / hosts. This is a lower bound for machines that are
        preempted together.
        """
        from ..offers.spot import find_preemption_statistics

        hazard = find_preemption_statistics(offer, self.facts)
        if self.terms.up_hours is not None:
            hazard = replace(hazard, basis="given", source="--assume spot_life_h")
            hazard = replace(hazard, up_hours=self.terms.up_hours, median_up_hours=None)
        if offer.hosts > 1:
            median_hours = hazard.median_up_hours and hazard.median_up_hours / offer.hosts
            hazard = replace(hazard, up_hours=hazard.up_hours / offer.hosts, median_up_hours=median_hours)
        key = (hazard, train_time_s.mid)
        try:
            return self._known[key]
        except KeyError:
            return self._known.setdefault(key, self._compute_forecast(hazard, train_time_s.mid))

    def _compute_forecast(self, hazard: PreemptionStatistics, work_s: float) -> PreemptionForecast | None:
        mean_s = hazard.up_hours * SECONDS_PER_HOUR
        median_s, longest_s = (
            one and one * SECONDS_PER_HOUR for one in (hazard.median_up_hours, hazard.life_hours_max)
        )
        law = Lifetimes(mean_s=mean_s, median_s=median_s, longest_s=longest_s)
        run = split_into_segments(
            work_s=work_s,
            interval_s=self.terms.interval_s or checkpoint_interval_s(save_s=self.save_s, mean_life_s=mean_s),
            save_s=self.save_s,
            restart_s=self.terms.restart_s or self.facts.checkpoint.restart_s,
            wait_s=hazard.down_hours * SECONDS_PER_HOUR,
        )
        try:
            moments = compute_run_moments(run, law)
        except OverflowError:  # a segment is hundreds of mean lifetimes long
            return None
        finishes = moments.billed_s < 1e3 * run.undisturbed_s
        return PreemptionForecast(hazard=hazard, run=run, moments=moments, work_s=work_s) if finishes else None

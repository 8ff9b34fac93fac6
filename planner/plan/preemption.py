"""Forecast of preemptions for a run on a spot machine: expected and 90th-percentile time, checkpoints, rework."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..limits import MAX_DURATION_S
from ..records import Frozen
from ..units import GIGA, SECONDS_PER_HOUR, Interval
from .checkpoints import (
    Lifetimes,
    RunMoments,
    SegmentedRun,
    checkpoint_interval_s,
    compute_p90_s,
    compute_run_moments,
    split_into_segments,
)
from .cost_terms import SPOT_KEYS

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..offers.spot import PreemptionData, PreemptionStatistics


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
    def billed_p90_s(self) -> float:
        """90th percentile of the billed time [s]."""
        return self._compute_p90_s(self.moments.billed_s, self.moments.billed_s2)

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
            ends_s = {"expected": moments.billed_s, "p90": self.billed_p90_s}
            cost_usd = {name: f"{time_s * price:.9f}" for name, time_s in ends_s.items()}
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
        median_hours = hazard.median_up_hours and hazard.median_up_hours / offer.hosts
        hazard = replace(hazard, up_hours=hazard.up_hours / offer.hosts, median_up_hours=median_hours)
        key = (hazard, train_time_s.mid)
        if key not in self._known:
            self._known[key] = self._compute_forecast(hazard, train_time_s.mid)
        return self._known[key]

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

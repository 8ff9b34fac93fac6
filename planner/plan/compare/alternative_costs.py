"""What every way to do some work costs, in money and in one's own time, at any number of epochs and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...units import SECONDS_PER_HOUR, Interval
from ..execution.scaling_mode import ScalingMode, compute_run_length
from ..pricing.money import USD_OF_A_NANO
from ..pricing.offer_terms import UnpricedRun
from ..pricing.offers import Pricer
from ..result.device_estimate import DeviceEstimate
from ..select import OfferContext
from .alternatives import Alternative
from .calendar import HOURS_PER_DAY, calendar_hours, own_hours

if TYPE_CHECKING:
    from decimal import Decimal

    from ...offers.rows import NotebookPlan
    from ...workload.model import Workload
    from ..cost_terms import CostTerms
    from ..pricing.bill import Bill
    from ..spot.preemption import PreemptionForecaster

__all__ = ["AlternativeCost", "AlternativeCostModel"]

DAYS_PER_MONTH = 30.0
ROUNDING = 1e-9  # of a bundle: what floating point may add to a whole number of them


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeCost:
    """All runs done in one way.

    Args:
        contender: The way.
        sessions: Times that it is set going, all runs together [-].
        machine_h: On the machine, all runs together [h].
        calendar_h: From the first start to the last end, one run after the other [h].
        own_h: Of one's own time [h].
        money_usd: What is paid, whole bundles and months included [USD].
        own_usd: One's own time at its value [USD].
    """

    alternative: Alternative
    sessions: int
    machine_h: Interval
    calendar_h: float
    own_h: float
    money_usd: Interval
    own_usd: float

    @property
    def total_usd(self) -> float:
        """Money and time together [USD]."""
        return self.money_usd.mid + self.own_usd

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `ways[]`."""
        offer = self.alternative.offer.offer
        free_share = self.alternative.availability
        return {
            "name": self.alternative.name,
            **offer.identity,
            "usd_per_hour": None if offer.usd_per_hour is None else format(offer.usd_per_hour, "f"),
            "price_as_of": offer.price_as_of,
            "sessions": self.sessions,
            "machine_h": self.machine_h.to_json(),
            "calendar_h": self.calendar_h,
            "own_h": self.own_h,
            "money_usd": {key: f"{usd:.6f}" for key, usd in self.money_usd.to_json().items()},
            "own_time_usd": f"{self.own_usd:.6f}",
            "total_usd": f"{self.total_usd:.6f}",
            "hours_a_day": free_share.hours_a_day,
            "hours_a_week": free_share.hours_a_week,
            "chance": free_share.chance,
        }


@dataclass(frozen=True, kw_only=True)
class AlternativeCostModel:
    """Works out what every contender costs at any number of epochs and runs.

    Args:
        workload: What runs.
        contenders: Who competes.
        selected: Each one's row, its session as long as it is really had.
        bundles: Smallest amount that can be paid, of a paid notebook without subscription [USD].
        terms: What is assumed.
        hour_value_usd: What an hour of one's own is worth [USD/h].
        outlooks: What interruptions do; None: spot machines are taken to stay.
        scaling: Whether each of several devices keeps the batch, or they share it.
    """

    workload: Workload
    alternatives: Sequence[Alternative]
    selected: Sequence[OfferContext]
    bundles: Sequence[Decimal | None]
    terms: CostTerms
    hour_value_usd: float
    outlooks: PreemptionForecaster | None = None
    scaling: ScalingMode = "weak"

    def at(self, *, epochs: int | None, runs: int) -> list[AlternativeCost]:
        """Return every way, the cheapest first; of equals, the sooner, then the first that was named."""
        workload = self.workload
        if epochs is not None and epochs != workload.epochs:
            workload = replace(workload, epochs=epochs, steps=None)
        pricer = Pricer(workload, self.terms, self.outlooks)
        outcomes = [
            self._outcome(index, self._lease(pricer, workload, index), runs)
            for index in range(len(self.alternatives))
        ]
        return sorted(outcomes, key=lambda way: (way.total_usd, way.calendar_h))

    def narrowed(self, *, epochs: int | None, runs: int) -> AlternativeCostModel:
        """Return the best of each name alone, as it is best at a number of epochs and runs."""
        best: dict[str, Alternative] = {}
        for outcome in self.at(epochs=epochs, runs=runs):
            best.setdefault(outcome.alternative.name, outcome.alternative)
        kept = [index for index, one in enumerate(self.alternatives) if best[one.name] is one]
        return replace(
            self,
            alternatives=[self.alternatives[index] for index in kept],
            selected=[self.selected[index] for index in kept],
            bundles=[self.bundles[index] for index in kept],
        )

    def _lease(self, pricer: Pricer, workload: Workload, index: int) -> UnpricedRun:
        """Return the run of the workload's epochs on a contender's machine."""
        known, selected = self.alternatives[index].offer.projection, self.selected[index]
        run = compute_run_length(workload, selected.offer.devices, self.scaling)
        step_s = known.step_time_s
        train_time_s = None if step_s is None or run.steps is None else step_s.scaled(run.steps)
        projection = DeviceEstimate(
            run=run, step_time=known.step_time, train_time_s=train_time_s, memory=known.memory
        )
        return pricer.lease(selected, projection)

    def _outcome(self, index: int, lease: UnpricedRun, runs: int) -> AlternativeCost:
        """Return all runs on one contender."""
        alternative, bundle, schedule = self.alternatives[index], self.bundles[index], lease.schedule
        time_s = Interval(low=0.0, mid=0.0, high=0.0) if schedule is None else schedule.wall_s
        machine_h = time_s.scaled(runs / SECONDS_PER_HOUR)
        sessions = runs * (1 if schedule is None else schedule.sessions or 1)
        elapsed_h = calendar_hours(machine_h.mid, alternative.availability)
        own_h = self._own_hours(index, sessions=sessions, machine_h=machine_h.mid)
        bill = lease.bill(self.selected[index].offer.usd_per_hour)
        money = [
            _paid(usd, plan=alternative.plan, bundle=bundle, elapsed_h=elapsed_h)
            for usd in _used_usd(bill, runs)
        ]
        return AlternativeCost(
            alternative=alternative, sessions=sessions, machine_h=machine_h, calendar_h=elapsed_h, own_h=own_h,
            money_usd=Interval(low=money[0], mid=money[1], high=money[2]),
            own_usd=own_h * self.hour_value_usd,
        )  # fmt: skip

    def _own_hours(self, index: int, *, sessions: int, machine_h: float) -> float:
        """Return the hours of one's own; an uncertain accelerator is asked for 1 / chance times."""
        alternative, place = self.alternatives[index], self.selected[index].place
        hands_on = self.terms.bounds("hands_on_min", place) or (0.0, 0.0, 0.0)
        attention = self.terms.bounds("attention_share", place) or (0.0, 0.0, 0.0)
        tries = sessions / (alternative.availability.chance or 1.0)
        return own_hours(
            sessions=math.ceil(tries), machine_h=machine_h, hands_on_min=hands_on[1],
            attention_share=attention[1] if alternative.attended else 0.0,
        )  # fmt: skip


def _used_usd(bill: Bill | None, runs: int) -> tuple[float, ...]:
    """Return the cost of all runs at the three ends of the interval [USD]."""
    return (0.0, 0.0, 0.0) if bill is None else tuple(runs * nano * USD_OF_A_NANO for nano in bill.nano)


def _paid(usd: float, *, plan: NotebookPlan | None, bundle: Decimal | None, elapsed_h: float) -> float:
    """Return what is paid for what is used: whole months of a plan, whole bundles of units [USD].

    Args:
        usd: What is used [USD].
        plan: What is subscribed to; None: nothing.
        bundle: Price of the smallest bundle; None: paid as used [USD].
        elapsed_h: On the calendar [h].
    """
    if plan is not None and plan.usd_per_month is not None:
        months = max(1, math.ceil(elapsed_h / HOURS_PER_DAY / DAYS_PER_MONTH))
        usd = max(usd, months * float(plan.usd_per_month))
    if bundle is None:
        return usd
    return math.ceil(usd / float(bundle) - ROUNDING) * float(bundle)

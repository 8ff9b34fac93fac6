"""Cost of each alternative in money, the user's time and the wait, and where the best one changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..records import to_plain
from ..units import SECONDS_PER_HOUR, Interval
from .alternatives import Alternative
from .bill import UnpricedRun
from .device_estimate import DeviceEstimate, combine_phases
from .money import USD_OF_A_NANO
from .offer_table import Pricer
from .ranking import compute_total_usd
from .run_length import ScalingMode, compute_run_length, with_total_epochs
from .sessions import Access

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .preemption import PreemptionForecaster


FARTHEST = 100_000  # largest number of epochs or runs in the search [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeCost:
    """Cost of all runs on one alternative.

    Args:
        alternative: The alternative.
        access: Terms on which its machine is had.
        sessions: Number of sessions of all runs [-].
        machine_h: Machine time of all runs [h].
        calendar_h: Time from the first start to the last end, with one run after the other [h].
        own_h: The user's time [h].
        money_usd: Amount paid, including unused shares of packs and months [USD].
        own_usd: Value of the user's time [USD].
        wait_usd: Value of the hours until the last end [USD].
        total_usd: What decides: the sum, with an allowance for an old price [USD].
    """

    alternative: Alternative
    access: Access
    sessions: int
    machine_h: Interval
    calendar_h: float
    own_h: float
    money_usd: Interval
    own_usd: float
    wait_usd: float
    total_usd: float

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `ways[]`."""
        offer = self.alternative.offer.offer
        return {
            "name": self.alternative.name,
            **offer.identity,
            "usd_per_hour": None if offer.usd_per_hour is None else format(offer.usd_per_hour, "f"),
            "price_as_of": offer.price_as_of,
            "sessions": self.sessions,
            "machine_h": to_plain(self.machine_h),
            "calendar_h": self.calendar_h,
            "own_h": self.own_h,
            "money_usd": {key: f"{usd:.6f}" for key, usd in to_plain(self.money_usd).items()},
            "own_time_usd": f"{self.own_usd:.6f}",
            "wait_usd": f"{self.wait_usd:.6f}",
            "total_usd": f"{self.total_usd:.6f}",
            "hours_a_day": self.access.hours_a_day,
            "hours_a_week": self.access.hours_a_week,
            "chance": self.access.chance,
        }


@dataclass(frozen=True, kw_only=True)
class AlternativeCostModel:
    """Costs of all alternatives as a function of the number of epochs and runs.

    Args:
        workload: Workload of a run.
        alternatives: Alternatives to compare.
        terms: Costs and assumptions.
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an hour of waiting [USD/h].
        forecaster: Forecaster of preemptions; None assumes that spot machines are never preempted.
        scaling: Strong scaling (devices share the batch) or weak scaling (each keeps it).
    """

    workload: Workload
    alternatives: Sequence[Alternative]
    terms: CostTerms
    hour_value_usd: float
    wait_value_usd: float
    forecaster: PreemptionForecaster | None = None
    scaling: ScalingMode = "strong"

    def at(self, *, epochs: int | None, runs: int) -> list[AlternativeCost]:
        """Return the cost of each alternative, the least total first."""
        workload = self.workload if epochs is None else with_total_epochs(self.workload, epochs)
        pricer = Pricer(workload, self.terms, self.forecaster, runs=runs)
        costs = [self._compute_cost(one, pricer, workload) for one in self.alternatives]
        return sorted(costs, key=lambda cost: (round(cost.total_usd, 9), cost.money_usd.mid, cost.calendar_h))

    def narrowed(self, *, epochs: int | None, runs: int) -> AlternativeCostModel:
        """Return the model with only the best alternative of each name at a number of epochs and runs."""
        best: dict[str, Alternative] = {}
        for cost in self.at(epochs=epochs, runs=runs):
            best.setdefault(cost.alternative.name, cost.alternative)
        return replace(self, alternatives=[one for one in self.alternatives if best[one.name] is one])

    def _build_run(self, pricer: Pricer, workload: Workload, alternative: Alternative) -> UnpricedRun:
        """Lay out the runs of the workload's epochs on the machine of an alternative."""
        known, selected = alternative.offer.device_estimate, alternative.offer.selected
        phases = []
        for one, estimate in zip(workload.phases, known.phases or (known,), strict=True):
            run = compute_run_length(one, estimate.replicas or selected.offer.devices, self.scaling)
            phases.append(DeviceEstimate(run=run, step_time=estimate.step_time, memory=estimate.memory))
        longest = next(i for i, one in enumerate(workload.phases) if one.fit_call == workload.fit_call)
        return pricer.build_run(selected, combine_phases(phases, longest=longest))

    def _compute_cost(self, alternative: Alternative, pricer: Pricer, workload: Workload) -> AlternativeCost:
        """Compute the cost of all runs on one alternative."""
        run, offer = self._build_run(pricer, workload, alternative), alternative.offer.offer
        timeline = run.timeline
        zero = Interval(low=0.0, mid=0.0, high=0.0)
        wall_h = 0.0 if timeline is None else timeline.wall_s.mid / SECONDS_PER_HOUR
        bill = run.bill(offer.usd_per_hour, half_width=self.terms.price_half_width(offer))
        low, mid, high = (0.0, 0.0, 0.0) if bill is None else (nano * USD_OF_A_NANO for nano in bill.nano)
        return AlternativeCost(
            alternative=alternative,
            access=pricer.find_access(alternative.offer.selected),
            sessions=1 if timeline is None else timeline.sessions,
            machine_h=zero if timeline is None else timeline.total_s.scaled(pricer.runs / SECONDS_PER_HOUR),
            calendar_h=wall_h,
            own_h=run.own_h,
            money_usd=Interval(low=low, mid=mid, high=high),
            own_usd=run.own_h * self.hour_value_usd,
            wait_usd=wall_h * self.wait_value_usd,
            total_usd=compute_total_usd(
                money_usd=mid,
                own_h=run.own_h,
                wall_h=wall_h,
                hour_value_usd=self.hour_value_usd,
                wait_value_usd=self.wait_value_usd,
                aged_share=self.terms.compute_aged_share(offer),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """A number of epochs or runs from which another alternative is the cheapest.

    Args:
        at: The first such number [-].
        before, to: Names of the alternatives.
    """

    at: int
    before: str
    to: str

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `turns`."""
        return {"from": self.at, "instead_of": self.before, "cheapest": self.to}


def find_crossovers(cheapest: Callable[[int], str], *, farthest: int = FARTHEST) -> tuple[Crossover, ...]:
    """Find the crossovers between 1 and a largest number.

    The search uses a grid of 12 % steps, then bisection: an alternative that is the cheapest only between two
    neighboring points of the grid is missed.

    Args:
        cheapest: Function that names the cheapest alternative at a number of epochs or runs.
        farthest: Largest number in the search [-].

    Example:
        >>> find_crossovers(lambda n: "free" if n < 38 else "rented")
        (Crossover(at=38, before='free', to='rented'),)
    """
    found = []
    low, name = 1, cheapest(1)
    while low < farthest:
        high = min(farthest, max(low + 1, math.ceil(low * 1.12)))
        after = cheapest(high)
        if after != name:
            at, to = _first_change(cheapest, low, high, name)
            found.append(Crossover(at=at, before=name, to=to))
            low, name = at, to
        else:
            low = high
    return tuple(found)


def _first_change(cheapest: Callable[[int], str], low: int, high: int, name: str) -> tuple[int, str]:
    """Return the number between two at which the name changes, and the new name."""
    while high - low > 1:
        middle = (low + high) // 2
        if cheapest(middle) == name:
            low = middle
        else:
            high = middle
    return high, cheapest(high)

"""Cost of each alternative in money and the user's time, and the numbers at which the cheapest one changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..records import to_plain
from ..units import SECONDS_PER_HOUR, Interval
from .alternatives import HOURS_PER_DAY, Alternative, calendar_hours, own_hours
from .bill import UnpricedRun
from .device_estimate import DeviceEstimate, combine_phases
from .money import USD_OF_A_NANO
from .offer_table import Pricer
from .run_length import ScalingMode, compute_run_length, with_total_epochs
from .select import OfferContext

if TYPE_CHECKING:
    from decimal import Decimal

    from ..offers.rows import NotebookPlan
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .preemption import PreemptionForecaster


DAYS_PER_MONTH = 30.0
CENTS = 2  # digits to which amounts are the same
ROUNDING = 1e-9  # tolerance of floating point when counting whole bundles [-]
FARTHEST = 100_000  # largest number of epochs or runs in the search [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeCost:
    """Cost of all runs on one alternative.

    Args:
        alternative: The alternative.
        sessions: Number of sessions of all runs [-].
        machine_h: Machine time of all runs [h].
        calendar_h: Time from the first start to the last end, with one run after the other [h].
        own_h: The user's time [h].
        money_usd: Amount paid, including unused shares of bundles and months [USD].
        own_usd: Value of the user's time [USD].
        wait_usd: Value of the unattended hours until the last end [USD].
    """

    alternative: Alternative
    sessions: int
    machine_h: Interval
    calendar_h: float
    own_h: float
    money_usd: Interval
    own_usd: float
    wait_usd: float = 0.0

    @property
    def total_usd(self) -> float:
        """Sum of money, value of the user's time and value of waiting [USD]."""
        return self.money_usd.mid + self.own_usd + self.wait_usd

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
            "machine_h": to_plain(self.machine_h),
            "calendar_h": self.calendar_h,
            "own_h": self.own_h,
            "money_usd": {key: f"{usd:.6f}" for key, usd in to_plain(self.money_usd).items()},
            "own_time_usd": f"{self.own_usd:.6f}",
            "wait_usd": f"{self.wait_usd:.6f}",
            "total_usd": f"{self.total_usd:.6f}",
            "hours_a_day": free_share.hours_a_day,
            "hours_a_week": free_share.hours_a_week,
            "chance": free_share.chance,
        }


@dataclass(frozen=True, kw_only=True)
class AlternativeCostModel:
    """Costs of all alternatives as a function of the number of epochs and runs.

    Args:
        workload: Workload of a run.
        alternatives: Alternatives to compare.
        selected: Offer of each alternative, with its effective session limit.
        bundles: Smallest payable amount of each alternative; None if billed by use or by month [USD].
        terms: Costs and assumptions.
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an unattended hour until the end [USD/h].
        forecaster: Forecaster of preemptions; None assumes that spot machines are never preempted.
        scaling: Weak scaling (each device keeps the batch) or strong scaling (devices share it).
    """

    workload: Workload
    alternatives: Sequence[Alternative]
    selected: Sequence[OfferContext]
    bundles: Sequence[Decimal | None]
    terms: CostTerms
    hour_value_usd: float
    wait_value_usd: float = 0.0
    forecaster: PreemptionForecaster | None = None
    scaling: ScalingMode = "weak"

    def at(self, *, epochs: int | None, runs: int) -> list[AlternativeCost]:
        """Return the cost of each alternative, best first, as ``order_costs`` orders them."""
        workload = self.workload if epochs is None else with_total_epochs(self.workload, epochs)
        pricer = Pricer(workload, self.terms, self.forecaster)
        costs = [
            self._compute_cost(index, self._build_run(pricer, workload, index), runs)
            for index in range(len(self.alternatives))
        ]
        return order_costs(costs)

    def narrowed(self, *, epochs: int | None, runs: int) -> AlternativeCostModel:
        """Return the model with only the best alternative of each name at a number of epochs and runs."""
        best: dict[str, Alternative] = {}
        for cost in self.at(epochs=epochs, runs=runs):
            best.setdefault(cost.alternative.name, cost.alternative)
        kept = [index for index, one in enumerate(self.alternatives) if best[one.name] is one]
        return replace(
            self,
            alternatives=[self.alternatives[index] for index in kept],
            selected=[self.selected[index] for index in kept],
            bundles=[self.bundles[index] for index in kept],
        )

    def _build_run(self, pricer: Pricer, workload: Workload, index: int) -> UnpricedRun:
        """Lay out the run of the workload's epochs on the machine of an alternative."""
        known, selected = self.alternatives[index].offer.device_estimate, self.selected[index]
        phases = []
        for one, estimate in zip(workload.phases, known.phases or (known,), strict=True):
            run = compute_run_length(one, estimate.replicas or selected.offer.devices, self.scaling)
            step_s = estimate.step_time_s
            train_time_s = None if step_s is None or run.steps is None else step_s.scaled(run.steps)
            phases.append(
                DeviceEstimate(
                    run=run, step_time=estimate.step_time, train_time_s=train_time_s, memory=estimate.memory
                )
            )
        longest = next(i for i, one in enumerate(workload.phases) if one.fit_call == workload.fit_call)
        return pricer.build_run(selected, combine_phases(phases, longest=longest))

    def _compute_cost(self, index: int, run: UnpricedRun, runs: int) -> AlternativeCost:
        """Compute the cost of all runs on one alternative."""
        alternative, bundle, timeline = self.alternatives[index], self.bundles[index], run.timeline
        time_s = Interval(low=0.0, mid=0.0, high=0.0) if timeline is None else timeline.wall_s
        machine_h = time_s.scaled(runs / SECONDS_PER_HOUR)
        sessions = runs * (1 if timeline is None else timeline.sessions or 1)
        elapsed_h = calendar_hours(machine_h.mid, alternative.availability)
        own_h = self._own_hours(index, sessions=sessions, machine_h=machine_h.mid)
        offer = self.selected[index].offer
        bill = run.bill(offer.usd_per_hour, half_width=self.terms.price_half_width(offer))
        used_usd = [0.0] * 3 if bill is None else [runs * nano * USD_OF_A_NANO for nano in bill.nano]
        money = [_paid(usd, plan=alternative.plan, bundle=bundle, elapsed_h=elapsed_h) for usd in used_usd]
        return AlternativeCost(
            alternative=alternative,
            sessions=sessions,
            machine_h=machine_h,
            calendar_h=elapsed_h,
            own_h=own_h,
            money_usd=Interval(low=money[0], mid=money[1], high=money[2]),
            own_usd=own_h * self.hour_value_usd,
            wait_usd=max(0.0, elapsed_h - own_h) * self.wait_value_usd,
        )

    def _own_hours(self, index: int, *, sessions: int, machine_h: float) -> float:
        """Return the user's hours; an uncertain accelerator takes sessions / chance attempts [h]."""
        alternative, place = self.alternatives[index], self.selected[index].place
        hands_on = self.terms.bounds("hands_on_min", place) or (0.0, 0.0, 0.0)
        attention = self.terms.bounds("attention_share", place) or (0.0, 0.0, 0.0)
        tries = sessions / (alternative.availability.chance or 1.0)
        return own_hours(
            sessions=math.ceil(tries),
            machine_h=machine_h,
            hands_on_min=hands_on[1],
            attention_share=attention[1] if alternative.attended else 0.0,
        )


def order_costs(costs: Sequence[AlternativeCost]) -> list[AlternativeCost]:
    """Sort costs by total; alternatives of equal money rank together, the earliest end first.

    Otherwise a few minutes of the user's time could outweigh a day of waiting for the same money.
    """
    swift: dict[float, AlternativeCost] = {}
    for cost in costs:
        money = round(cost.money_usd.mid, CENTS)
        best = swift.get(money)
        if best is None or (cost.calendar_h, cost.total_usd) < (best.calendar_h, best.total_usd):
            swift[money] = cost
    return sorted(
        costs,
        key=lambda cost: (swift[round(cost.money_usd.mid, CENTS)].total_usd, cost.calendar_h, cost.total_usd),
    )


def _paid(usd: float, *, plan: NotebookPlan | None, bundle: Decimal | None, elapsed_h: float) -> float:
    """Return the payment for some usage: at least the months of a plan, rounded up to whole bundles [USD]."""
    if plan is not None and plan.usd_per_month is not None:
        months = max(1, math.ceil(elapsed_h / HOURS_PER_DAY / DAYS_PER_MONTH))
        usd = max(usd, months * float(plan.usd_per_month))
    if bundle is None:
        return usd
    return math.ceil(usd / float(bundle) - ROUNDING) * float(bundle)


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

"""Break-even analysis between alternatives: free and paid notebooks, the user's own machine and the clouds.

The decision for one run, and the numbers of epochs and runs at which another alternative has the least total.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import NoAnswerError, UsageError
from ..limits import MAX_RUNS, require_count
from ..offers.clouds import HYPERSCALERS
from ..records import Frozen, to_plain
from ..units import SECONDS_PER_HOUR, ZERO, Interval
from .context import follow_script
from .device_estimate import DeviceEstimate, combine_phases, compute_run_length, with_total_epochs
from .estimate import Crossover, Estimate, explain_no_answer
from .estimate_workload import estimate_in_context, plan_what_fits
from .offer_estimate import OfferEstimate
from .offer_table import Pricer, build_preemption_forecaster
from .question import require_run_length, require_whole
from .ranking import compute_totals
from .timeline import build_access

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .bill import UnpricedRun
    from .cost_terms import CostTerms
    from .estimate_device import FitWays
    from .offer_table import OfferTable
    from .preemption import PreemptionForecaster
    from .question import EstimateContext, OfferContext, Question


DEFAULT_ALTERNATIVES = ("colab-free", "kaggle-free", "colab-payg", "local", "cloud:on-demand", "cloud:spot")
Point = tuple[int | None, int]  # epochs (None: those that were asked for) and runs
PURCHASES = {"on-demand": "on_demand", "on_demand": "on_demand", "spot": "spot"}
PROBED_RUNS, PROBED_EPOCHS = (1, 10, 100, 10_000), (1, 100, 10_000)  # where the best of all offers is looked for


class Alternative(Frozen):
    """All runs on an offer, under the name by which it is compared."""

    name: str  # name under which it was requested, or the narrowest one
    offer: OfferEstimate  # estimate of all runs on the offer
    runs: int = 1  # number of equal runs, one after the other [-]

    @property
    def machine_h(self) -> Interval:
        """Machine time of all runs [h]."""
        total_s = ZERO if self.offer.timeline is None else self.offer.timeline.total_s
        return total_s.scaled(self.runs / SECONDS_PER_HOUR)

    @property
    def time_s(self) -> Interval:
        """Time from the first start to the last end, which is known [s]."""
        return self.offer.run_time_s or ZERO

    @property
    def calendar_h(self) -> float:
        """The same by the central estimate [h]."""
        return self.time_s.mid / SECONDS_PER_HOUR

    @property
    def money_usd(self) -> Interval:
        """Amount paid, including unused shares of packs and months [USD]."""
        return ZERO if self.offer.bill is None else self.offer.bill.usd

    @property
    def total_usd(self) -> float:
        """Total that decides [USD]."""
        return self.offer.total_usd or 0.0

    def to_json(self, question: Question, terms: CostTerms) -> dict[str, Any]:
        """Return one entry of `ways[]`."""
        offer, own_h, access = self.offer.offer, self.offer.own_h, build_access(self.offer.selected, terms)
        return {
            "name": self.name,
            **offer.identity,
            "usd_per_hour": None if offer.usd_per_hour is None else format(offer.usd_per_hour, "f"),
            "price_as_of": offer.price_as_of,
            "sessions": self.offer.sessions,
            "machine_h": to_plain(self.machine_h),
            "calendar_h": self.calendar_h,
            "own_h": own_h,
            "money_usd": {key: f"{usd:.6f}" for key, usd in to_plain(self.money_usd).items()},
            "own_time_usd": f"{own_h * question.hour_value_usd:.6f}",
            "wait_usd": f"{self.calendar_h * question.wait_value_usd:.6f}",
            "total_usd": f"{self.total_usd:.6f}",
            "hours_a_day": access.hours_a_day,
            "hours_a_week": access.hours_a_week,
            "chance": access.chance,
        }


class Alternatives(Frozen):
    """Offers of an estimate by their names, priced at numbers of epochs and runs; their step times are known."""

    estimate: Estimate  # estimate of one run
    context: EstimateContext  # its context
    question: Question  # scaling, values of hours and spot properties
    rows: dict[str, int] = field(default_factory=dict)  # position of each alternative, by its name

    @property
    def offers(self) -> OfferTable:
        """The offers with the run that was asked for, to which nothing was added."""
        return cast("OfferTable", self.estimate.offers)

    @cached_property
    def _forecaster(self) -> PreemptionForecaster | None:
        return build_preemption_forecaster(self.context.workload, self.context.selection, self.question.spot)

    def at(self, epochs: int | None, runs: int) -> list[Alternative]:
        """Return all runs on each alternative, the least total first."""
        names, (table, order) = list(self.rows), self.price([*self.rows.values()], epochs=epochs, runs=runs)
        return [Alternative(name=names[row], offer=table[row], runs=runs) for row in order]

    def find_best(self, epochs: int | None, runs: int) -> str:
        """Return the name of the alternative of the least total."""
        return list(self.rows)[self.price([*self.rows.values()], epochs=epochs, runs=runs)[1][0]]

    def with_named(self, names: Sequence[str], rows: Sequence[int], runs: int) -> Alternatives:
        """Return these and the best of some offers for each name that means one, at a number of runs."""
        found, order = dict(self.rows), self._sort(rows, None, runs) if rows else []
        for name in names:
            means = build_matcher(name)
            best = next((row for row in order if means(self.offers.contexts[row].offer)), None)
            if best is not None:
                found[name] = best
        return replace(self, rows=found)

    def with_best(self, rows: Sequence[int], points: Sequence[Point]) -> Alternatives:
        """Return these and the best of some offers at each of some numbers of epochs and runs."""
        return self.with_rows([self._sort(rows, epochs, runs)[0] for epochs, runs in points])

    def with_rows(self, rows: Sequence[int]) -> Alternatives:
        """Return these and other offers by their narrowest names, with the region where that is taken."""
        found = dict(self.rows)
        for row in rows:
            if row not in found.values():
                offer = self.offers.contexts[row].offer
                instance = offer.instance_type.removeprefix(f"{offer.provider}:")
                name = f"{offer.provider}:{instance}:{offer.purchase}"
                found[f"{name}:{offer.region}" if name in found else name] = row
        return replace(self, rows=found)

    def price(self, rows: Sequence[int], *, epochs: int | None, runs: int) -> tuple[OfferTable, list[int]]:
        """Return some offers with equal runs on them, one after the other, and their order, the least total first.

        Of equal totals, what is sure to be had comes first, then by money, time and effort, as in the decision.
        Without `epochs`, a run is that of the workload.
        """
        import numpy as np

        own = self.context.workload
        workload = own if epochs is None else with_total_epochs(own, epochs)
        pricer = Pricer(workload, self.context.terms, self._forecaster, runs=runs)
        known: dict[int, DeviceEstimate] = {}

        def build_run(selected: OfferContext, estimate: DeviceEstimate) -> UnpricedRun:
            if workload is not own and id(estimate) not in known:
                known[id(estimate)] = self._stretch(estimate, workload, selected.offer.devices)
            return pricer.build_run(selected, known.get(id(estimate), estimate))

        table = self.offers.reprice(np.array(rows, dtype=np.intp), build_run)
        compute_totals(table, self.question)
        keys = (table.own_h, table.time_s, table.cost_usd, table.is_late, table.total_usd.round(9))
        return table, np.lexsort(keys).tolist()

    def _sort(self, rows: Sequence[int], epochs: int | None, runs: int) -> list[int]:
        """Return the positions of some offers, the least total of all runs first."""
        return [rows[place] for place in self.price(rows, epochs=epochs, runs=runs)[1]]

    def _stretch(self, known: DeviceEstimate, workload: Workload, devices: float) -> DeviceEstimate:
        """Return the estimate of a workload of other epochs from its step times."""
        scaling, phases = follow_script(self.question, workload).scaling or "strong", []
        for one, estimate in zip(workload.phases, known.phases or (known,), strict=True):
            run = compute_run_length(one, estimate.replicas or devices, scaling)
            phases.append(replace(estimate, run=run, phases=()))
        return combine_phases(phases, longest=workload.longest_phase)


def build_matcher(name: str) -> Callable[[Offer], bool]:
    """Return the function that tells whether a name means an offer.

    A name is a provider or the beginning of an instance type, followed by patterns of the instance type or a
    purchase option: `colab-free`, `local`, `aws`, `aws:g4dn.xlarge`, `aws:g4dn.*:spot`, `cloud:spot`. `cloud`
    stands for AWS, Google Cloud and Azure.
    """
    head, *parts = name.lower().split(":")
    purchase = next((PURCHASES[part] for part in parts if part in PURCHASES), None)
    patterns = [part for part in parts if part not in PURCHASES]

    def means(offer: Offer) -> bool:
        provider, instance = offer.provider.lower(), offer.instance_type.lower()
        known = provider == head or instance.startswith(head) or (head == "cloud" and provider in HYPERSCALERS)
        fits = all(fnmatchcase(instance, p) or fnmatchcase(instance, f"{provider}:{p}") for p in patterns)
        return known and fits and purchase in (None, offer.purchase)

    return means


def has_epochs(workload: Workload) -> bool:
    """Return whether a run is given in epochs, in all of its phases."""
    return workload.total_epochs is not None and all(one.samples is not None for one in workload.phases)


SCHEMA = "gpuplan.breakeven/1"
TURNS_SHOWN, USUAL_RUNS = 2, 10
FARTHEST = 100_000  # largest number of epochs or runs in the search [-]
MOST_ROUNDS = 8  # of looking for what is better than the alternatives where one of them becomes the best


def find_crossovers(cheapest: Callable[[int], str], *, farthest: int = FARTHEST) -> tuple[Crossover, ...]:
    """Find the crossovers between 1 and a largest number.

    `cheapest` names the cheapest alternative at a number. The search uses a grid of 12 % steps, then bisection: an
    alternative that is the cheapest only between two neighboring points of the grid is missed.

    Example:
        >>> find_crossovers(lambda n: "free" if n < 38 else "rented")
        (Crossover(at=38, before='free', to='rented'),)
    """

    def differs(name: str, number: int) -> bool:
        return cheapest(number) != name

    found = []
    low, name = 1, cheapest(1)
    while low < farthest:
        high = min(farthest, max(low + 1, math.ceil(low * 1.12)))
        if not differs(name, high):
            low = high
            continue
        low = bisect_left(range(high), True, lo=low + 1, key=partial(differs, name))
        before, name = name, cheapest(low)
        found.append(Crossover(at=low, before=before, to=name))
    return tuple(found)


class Breakeven(Frozen):
    """The decision for one run, and what is best for more epochs or runs."""

    estimate: Estimate  # estimate of one run, with its decision
    question: Question  # question that it answers
    named: bool  # whether the alternatives were named, so that the decision is not theirs
    runs: int  # number of runs that is asked for [-]
    totals: dict[int, tuple[Alternative, ...]]  # by number of runs, all alternatives, the least total first
    # Crossovers at the requested number of runs; None if the run is not given in epochs
    by_epochs: tuple[Crossover, ...] | None
    by_runs: tuple[Crossover, ...]  # crossovers at the requested number of epochs

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The alternatives at the requested number of runs, best first."""
        return self.totals[self.runs]

    @property
    def best(self) -> Alternative:
        """The first alternative."""
        return self.alternatives[0]

    def list_worthwhile(self, runs: int) -> list[Alternative]:
        """Return the alternatives at a number of runs that none beats in money, time and effort."""
        ways = self.totals[runs]
        shares = [1.0 + self.estimate.terms.compute_aged_share(one.offer.offer) for one in ways]  # for old prices
        points = [
            (share * one.money_usd.mid, one.calendar_h, one.offer.own_h)
            for share, one in zip(shares, ways, strict=True)
        ]

        def is_beaten(point: tuple[float, ...]) -> bool:
            return any(
                other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points
            )

        return [one for one, point in zip(ways, points, strict=True) if self.named or not is_beaten(point)]

    @property
    def decision(self) -> dict[str, Any] | None:
        """The decision for one run as in `gpuplan estimate --json`; None for named alternatives."""
        return None if self.named else self.estimate.decision_json()

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        workload, question, terms = self.estimate.workload, self.question, self.estimate.terms
        ways = {runs: [one.to_json(question, terms) for one in found] for runs, found in self.totals.items()}
        return {
            "schema": SCHEMA,
            "workload": {
                "model": workload.model,
                "batch_size": workload.batch_size,
                "precision": workload.precision,
                "samples": workload.samples,
                "epochs": workload.total_epochs,
                "steps": workload.total_steps,
            },
            "runs": self.runs,
            "hour_value_usd": f"{question.hour_value_usd:.2f}",
            "wait_value_usd": f"{question.wait_value_usd:.2f}",
            "decision": self.decision,
            "cheapest": self.best.name,
            "ways": ways[self.runs],
            "totals": [{"runs": runs, "ways": found} for runs, found in ways.items()],
            "turns": {
                "epochs": None if self.by_epochs is None else [turn.to_json() for turn in self.by_epochs],
                "runs": [turn.to_json() for turn in self.by_runs],
            },
            "terms": terms.to_json(),
        }


def compare_alternatives(
    context: EstimateContext,
    *,
    question: Question,
    against: tuple[str, ...] = (),
    runs: int = 1,
    ways: FitWays | None = None,
    prepare: Callable[[], tuple[Question, FitWays]] | None = None,
) -> Breakeven:
    """Return the alternatives for a run, best first, and the points at which the best one changes.

    Without names in `against`, the best and the usual ones. `ways` are what may be changed of steps that do not
    fit; `prepare` returns the question and ways of `--fit`, for a training that fits nowhere.

    Raises:
        UsageError: The run's length is unknown, or a name matches no offer.
        NoAnswerError: No alternative can run the work, or none keeps the limits.
    """
    require_count(runs, what="--runs", example="10", most=MAX_RUNS)
    require_run_length(context.workload, "a comparison")
    estimate = estimate_in_context(context, question, ways=ways)
    if prepare is not None:
        estimate = plan_what_fits(estimate, context, prepare)
    if not against and (error := explain_no_answer(estimate)) is not None:
        raise error
    alternatives = select_alternatives(context, estimate, question=question, against=against, runs=runs)
    alternatives, by_runs, numbers = _follow_runs(alternatives, runs, () if against else estimate.decision.kept)
    return Breakeven(
        estimate=estimate,
        question=question,
        named=bool(against),
        runs=runs,
        totals={number: tuple(alternatives.at(None, number)) for number in numbers},
        by_epochs=find_crossovers(partial(alternatives.find_best, runs=runs))
        if has_epochs(context.workload)
        else None,
        by_runs=by_runs,
    )


def _follow_runs(
    alternatives: Alternatives, runs: int, kept: Sequence[int]
) -> tuple[Alternatives, tuple[Crossover, ...], list[int]]:
    """Return the crossovers by number of runs and the numbers to show, with what is best of all at those."""
    for _ in range(MOST_ROUNDS):
        by_runs = find_crossovers(partial(alternatives.find_best, None))
        turns = [turn.at for turn in by_runs[:TURNS_SHOWN]]
        numbers = sorted({1, runs, *(turns or [USUAL_RUNS])})
        if not kept:
            break
        more = alternatives.with_best(kept, [(None, number) for number in numbers])
        if more.rows == alternatives.rows:
            break
        alternatives = more
    return alternatives, by_runs, numbers


def select_alternatives(
    context: EstimateContext,
    estimate: Estimate,
    *,
    question: Question,
    against: tuple[str, ...] = (),
    runs: int = 1,
) -> Alternatives:
    """Return the best offer of each name that can run the work, at the number of runs that is asked for.

    Without names, what may be best of the offers that keep the limits at some number of epochs and runs, and the
    best of the usual names.

    Raises:
        UsageError: A name matches no offer.
        NoAnswerError: No alternative can run the work.
    """
    require_whole(context.workload, question)
    every = Alternatives(estimate=estimate, context=context, question=question)
    if not against:
        points: list[Point] = [(None, number) for number in PROBED_RUNS]
        if has_epochs(context.workload):
            points += [(number, runs) for number in PROBED_EPOCHS]
        decision = estimate.decision
        named = every.with_named(DEFAULT_ALTERNATIVES, decision.kept, runs)
        return named.with_rows(tuple(decision.roles())).with_best(decision.kept, points)
    for name in against:
        if not any(map(build_matcher(name), (one.offer for one in every.offers.contexts))):
            raise UsageError(
                f"`{name}` in `--against` matches no offer",
                hint="give e.g. `colab-free`, `local`, `aws:g4dn.xlarge`, `aws:g4dn.xlarge:spot`, `cloud:spot`",
            )
    possible = [
        row
        for row, one in enumerate(every.offers)
        if one.bill is not None and one.offer.complete
        if one.device_estimate.memory.fits and not one.device_estimate.is_ruled_out
    ]
    found = every.with_named(against, possible, runs)
    if not found.rows:
        raise NoAnswerError(
            f"none of {', '.join(against)} can run the work: too little memory, or no known time and price",
            hint="try a smaller `--batch-size`, or other names in `--against`",
        )
    return found

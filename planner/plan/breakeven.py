"""Break-even analysis between alternatives: free and paid notebooks, the user's own machine and the clouds.

Money and the user's time for the same run, and the numbers of epochs and runs at which the cheapest one changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..limits import MAX_RUNS, require_count, require_not_negative
from ..offers.clouds import HYPERSCALERS
from ..units import SECONDS_PER_HOUR
from .alternative_costs import AlternativeCost, AlternativeCostModel, Crossover, find_crossovers
from .alternatives import DEFAULT_ALTERNATIVES, HOURS_PER_DAY, Alternative, select_alternatives
from .estimate_workload import estimate_workload
from .offer_table import build_preemption_forecaster
from .question import Question
from .script_layout import follow_script
from .select import NOTEBOOKS, OfferContext

if TYPE_CHECKING:
    from decimal import Decimal

    from ..offers.catalog import Catalog
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .estimate import Estimate
    from .fitting import FitWays
    from .offer_estimate import OfferEstimate
    from .question import EstimateContext


SCHEMA = "gpuplan.breakeven/1"


@dataclass(frozen=True, kw_only=True)
class Breakeven:
    """The alternatives, best first, and the points at which the best one changes.

    Args:
        workload: Workload of a run.
        alternatives: By total cost, best first.
        runs: Number of runs [-].
        hour_value_usd: Value of an hour of the user's time [USD/h].
        by_epochs: Crossovers at the requested number of runs; None if the run is not given in epochs.
        by_runs: Crossovers at the requested number of epochs.
        terms: Costs and assumptions.
        decision: The decision of `estimate` on the same offers; None if the alternatives were named or there
            are several runs.
        wait_value_usd: Value of an unattended hour until the end [USD/h].
    """

    workload: Workload
    alternatives: tuple[AlternativeCost, ...]
    runs: int
    hour_value_usd: float
    by_epochs: tuple[Crossover, ...] | None
    by_runs: tuple[Crossover, ...]
    terms: CostTerms
    decision: Mapping[str, Any] | None = None
    wait_value_usd: float = 0.0

    @property
    def best(self) -> AlternativeCost:
        """The first alternative."""
        return self.alternatives[0]

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        workload = self.workload
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
            "hour_value_usd": f"{self.hour_value_usd:.2f}",
            "wait_value_usd": f"{self.wait_value_usd:.2f}",
            "decision": self.decision,
            "cheapest": self.best.alternative.name,
            "ways": [cost.to_json() for cost in self.alternatives],
            "turns": {
                "epochs": None if self.by_epochs is None else [turn.to_json() for turn in self.by_epochs],
                "runs": [turn.to_json() for turn in self.by_runs],
            },
            "terms": self.terms.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakevenQuery:
    """Parameters of a break-even analysis.

    Args:
        against: Names of the alternatives; empty for the default ones.
        runs: Number of runs [-].
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an unattended hour until the end [USD/h].
        hours_a_day: Hours a day during which the user keeps a notebook open [h].

    Raises:
        UsageError: A number out of range.
    """

    against: tuple[str, ...] = ()
    runs: int = 1
    hour_value_usd: float = 0.0
    wait_value_usd: float = 0.0
    hours_a_day: float = 8.0

    def __post_init__(self) -> None:
        require_count(self.runs, what="--runs", example="10", most=MAX_RUNS)
        if not 0 < self.hours_a_day <= HOURS_PER_DAY:
            raise UsageError(
                f"`--assume notebook_hours_a_day={self.hours_a_day:g}`: a day has 24",
                hint="try `--assume notebook_hours_a_day=8`",
            )
        require_not_negative(self.hour_value_usd, what="--hour-value", example="20")


def compare_alternatives(
    context: EstimateContext, query: BreakevenQuery, *, question: Question, ways: FitWays | None = None
) -> Breakeven:
    """Return the alternatives for a run, best first, and the points at which the best one changes.

    Args:
        context: Workload, offers and terms.
        query: Alternatives, number of runs and value of the user's time.
        question: Sort criterion and spot properties.
        ways: What may be changed of steps that do not fit; None for nothing.

    Raises:
        UsageError: The run's length is unknown, or a name matches no offer.
        NoAnswerError: No alternative can run the work.
    """
    workload, terms = context.workload, context.terms
    if workload.steps is None and (workload.samples is None or workload.epochs is None):
        raise UsageError(
            f"a comparison needs the length of the run, which `{workload.model}` does not state",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )
    estimate = estimate_workload(
        workload,
        selection=context.selection,
        predictor=context.predictor,
        question=question,
        terms=terms,
        resized=context.resized,
        feed=context.feed,
        ways=ways,
    )
    own = () if query.against else _name_picks(estimate)
    model = build_cost_model(context, query, estimate.offers, question=question, also=own)
    found = find_breakeven(model.narrowed(epochs=workload.total_epochs, runs=query.runs), runs=query.runs)
    if query.against or query.runs > 1:
        return found
    return replace(found, decision=estimate.decision_json())


def _name_picks(estimate: Estimate) -> list[str]:
    """Return the names of the cheapest and the fastest paid offer where no default alternative covers them."""
    picks = (estimate.decision.cheapest_paid, estimate.decision.fastest_paid)
    offers = [estimate.offers[index].offer for index in dict.fromkeys(picks) if index is not None]
    return [
        f"{one.provider}:{one.instance_type.removeprefix(f'{one.provider}:')}:{one.purchase}"
        for one in offers
        if one.provider not in (*HYPERSCALERS, *NOTEBOOKS)
    ]


def build_cost_model(
    context: EstimateContext,
    query: BreakevenQuery,
    offers: Sequence[OfferEstimate],
    *,
    question: Question,
    also: Sequence[str] = (),
) -> AlternativeCostModel:
    """Build the cost model of the alternatives.

    Args:
        context: Workload, offers and terms.
        query: Alternatives, number of runs and value of the user's time.
        offers: Estimates on all offers, best first.
        question: Scaling and spot properties.
        also: Names of alternatives besides the default ones.

    Raises:
        UsageError: A name matches no offer.
        NoAnswerError: No alternative can run the work.
    """
    workload, terms = context.workload, context.terms
    alternatives = select_alternatives(
        query.against or (*DEFAULT_ALTERNATIVES, *also),
        offers,
        catalog=context.catalog,
        terms=terms,
        hours_a_day=query.hours_a_day,
        asked_for=bool(query.against),
    )
    rows = {id(selected.offer): selected for selected in context.selection.offers}
    return AlternativeCostModel(
        workload=workload,
        alternatives=alternatives,
        selected=[_limit_session(rows[id(one.offer.offer)], one) for one in alternatives],
        bundles=[_bundle(one, context.catalog) for one in alternatives],
        terms=terms,
        hour_value_usd=query.hour_value_usd,
        wait_value_usd=query.wait_value_usd,
        forecaster=build_preemption_forecaster(workload, context.selection, question.spot),
        scaling=follow_script(question, workload).scaling or "weak",
    )


def _limit_session(selected: OfferContext, alternative: Alternative) -> OfferContext:
    """Return an offer with its session limited to the hours that are available in a day."""
    if selected.session_s is None:
        return selected
    had_s = alternative.availability.hours_a_day * SECONDS_PER_HOUR
    return selected._replace(session_s=min(selected.session_s, had_s))


def _bundle(alternative: Alternative, catalog: Catalog) -> Decimal | None:
    """Return the smallest payable amount; None if billed by use or by month [USD]."""
    from ..offers.notebooks import find_bundle_usd

    plan = alternative.plan
    if plan is None or plan.free or plan.usd_per_month is not None:
        return None
    return find_bundle_usd(catalog.notebooks, plan)


def find_breakeven(model: AlternativeCostModel, *, runs: int) -> Breakeven:
    """Return the costs as asked, and the numbers of epochs and runs at which the cheapest alternative changes.

    Args:
        model: Cost model of the alternatives.
        runs: Number of runs [-].
    """
    workload = model.workload
    in_epochs = workload.total_epochs is not None and all(one.samples is not None for one in workload.phases)

    def by_epochs(n: int) -> str:
        return model.at(epochs=n, runs=runs)[0].alternative.name

    def by_runs(n: int) -> str:
        return model.at(epochs=workload.total_epochs, runs=n)[0].alternative.name

    return Breakeven(
        workload=workload,
        alternatives=tuple(model.at(epochs=workload.total_epochs, runs=runs)),
        runs=runs,
        hour_value_usd=model.hour_value_usd,
        wait_value_usd=model.wait_value_usd,
        by_epochs=find_crossovers(by_epochs) if in_epochs else None,
        by_runs=find_crossovers(by_runs),
        terms=model.terms,
    )

"""Details of a report besides the offers: step breakdowns, itemized bills, and cost against epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..errors import NoAnswerError
from ..predict.breakdown import StepBreakdown, break_down_step
from ..predict.predictor import Predictor
from ..predict.step_time import StepTime
from .compare.alternative_costs import Crossover, find_crossovers
from .compare.breakeven import BreakevenQuery, build_cost_model
from .result.estimate import CostCurve, ReportDetails

if TYPE_CHECKING:
    from .compare.alternative_costs import AlternativeCost, AlternativeCostModel
    from .question import EstimateContext, Question
    from .result.estimate import Estimate

ACCELERATORS_SHOWN = 6
PAID_COLAB = "colab-payg"
EPOCHS_SHOWN = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
MOST_EPOCHS_TIMES = 10  # end of the curves, as a multiple of the requested epochs [-]


def build_report_details(context: EstimateContext, estimate: Estimate, question: Question) -> ReportDetails:
    """Build the report details of an estimate.

    Args:
        context: Context of the estimate.
        estimate: The estimate.
        question: Question that the estimate answers.
    """
    chosen = estimate.recommendation
    limited = (chosen.cheapest, chosen.fastest, chosen.within_deadline, chosen.within_budget, chosen.free)
    named = (*estimate.decision.roles(), *limited)
    recommended = tuple(dict.fromkeys(index for index in named if index is not None))
    curves = _CostCurves.of(context, estimate, question)
    shown = (*recommended, *chosen.pareto, *estimate.best_per_devices())
    return ReportDetails(
        steps=_steps(context, estimate, shown),
        bills=recommended,
        curves=() if curves is None else tuple(curves.curves()),
        crossovers=() if curves is None else curves.find_crossover_points(),
        colab=() if curves is None else tuple(curves.against(PAID_COLAB)),
    )


def _steps(context: EstimateContext, estimate: Estimate, shown: Sequence[int]) -> tuple[StepBreakdown, ...]:
    """Break down the step on one device of each of the first distinct accelerators of some offers."""
    wanted = [estimate.offers[index].selected.accelerator for index in shown]
    found: dict[str, StepBreakdown] = {}
    known = Predictor.load()
    for accelerator in sorted((one for one in wanted if one is not None), key=lambda one: one.kind == "cpu"):
        if accelerator.name in found:
            continue
        step = context.predictor.step_time(context.workload, accelerator, devices=1)
        if isinstance(step, StepTime):
            taken = break_down_step(context.workload, accelerator, step, known.coefficients)
            found |= {} if taken is None else {accelerator.name: taken}
        if len(found) == ACCELERATORS_SHOWN:
            break
    return tuple(found.values())


@dataclass(frozen=True)
class _CostCurves:
    """Costs of the default alternatives at numbers of epochs, computed once per number."""

    costs: AlternativeCostModel
    asked: int
    known: dict[int, dict[str, AlternativeCost]] = field(default_factory=dict)

    @classmethod
    def of(cls, context: EstimateContext, estimate: Estimate, question: Question) -> _CostCurves | None:
        """Build the curves; None if the run is not given in epochs or no default alternative is offered."""
        workload = context.workload
        if workload.epochs is None or workload.samples is None:
            return None
        try:
            costs = build_cost_model(context, BreakevenQuery(), estimate.offers, question=question)
        except NoAnswerError:
            return None
        return cls(costs.narrowed(epochs=workload.epochs, runs=1), workload.epochs)

    @property
    def farthest(self) -> int:
        """End of the curves [epochs]."""
        return MOST_EPOCHS_TIMES * max(self.asked, 10)

    def at(self, epochs: int) -> dict[str, AlternativeCost]:
        """Return the cost of each alternative by name, the cheapest first."""
        if epochs not in self.known:
            found = self.costs.at(epochs=epochs, runs=1)
            self.known[epochs] = {cost.alternative.name: cost for cost in found}
        return self.known[epochs]

    def find_crossover_points(self) -> tuple[Crossover, ...]:
        """Return the numbers of epochs at which the cheapest alternative changes."""
        return find_crossovers(lambda n: next(iter(self.at(n))), farthest=self.farthest)

    def against(self, name: str) -> Iterator[Crossover]:
        """Yield the numbers of epochs at which one alternative overtakes each other paid one in cost."""
        asked = self.at(self.asked)
        for other in [rival for rival in asked if rival != name and asked[rival].money_usd.mid > 0]:
            yield from (
                find_crossovers(partial(self._cheaper, name, other), farthest=self.farthest)
                if name in asked
                else ()
            )

    def _cheaper(self, one: str, other: str, epochs: int) -> str:
        """Return the name of the cheaper of two alternatives."""
        found = self.at(epochs)
        return one if found[one].total_usd <= found[other].total_usd else other

    def curves(self) -> Iterator[CostCurve]:
        """Yield the cost curve of each alternative."""
        epochs = sorted({n for n in EPOCHS_SHOWN if n <= self.farthest} | {self.asked, self.farthest})
        for alternative in self.costs.alternatives:
            found = [(n, self.at(n)[alternative.name].money_usd) for n in epochs]
            yield CostCurve(
                name=alternative.name,
                instance_type=alternative.offer.offer.instance_type,
                points=tuple((n, usd.low, usd.mid, usd.high) for n, usd in found),
            )

"""Estimate of a model on every offer: trace it, predict, price, rank; then the details that the user asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..limits import MAX_EPOCHS
from ..predict.breakdown import StepBreakdown, break_down_step
from ..predict.predictor import Predictor
from ..predict.step_time import StepTime
from ..records import to_plain
from ..units import ZERO, Interval
from ..workload.capture.tracing_process import keep_models_built
from ..workload.options import compute_run_steps
from .breakeven import find_crossovers, select_alternatives
from .context import build_context, select_named_machines, trace_workload
from .decision import name_offer
from .device_estimate import with_total_epochs
from .estimate import BudgetEpochs, Estimate
from .estimate_device import FitWays
from .estimate_workload import estimate_in_context, plan_what_fits, prepare_fit, require_fittable
from .measured_steps import describe_measuring, measure_own_machine
from .offer_estimate import OfferEstimate, ServingEstimate
from .question import EstimateContext, Question

if TYPE_CHECKING:
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .breakeven import Alternative
    from .compilation import StepCompiler
    from .request import ResolvedRequest


ROUNDS = 4  # of the secant method; the cost is nearly linear in the epochs
CHOICES = 2  # times that the offer is chosen again at the epochs found


def is_length_open(context: EstimateContext, question: Question) -> bool:
    """Return whether the epochs of a training are unknown, and a budget may set them."""
    one = context.workload
    is_open = one.total_epochs is None and one.total_steps is None
    return question.budget_usd is not None and is_open and one.mode == "train" and one.samples is not None


def estimate_for_budget(context: EstimateContext, question: Question, *, ways: FitWays | None) -> Estimate:
    """Return the estimate of as many epochs as a budget buys, on every offer, and of their number."""
    free = replace(question, budget_usd=None)
    epochs, answer = 1, None
    for _ in range(1 + CHOICES):
        run = replace(context, workload=_with_epochs(context.workload, epochs))
        answer = add_budget_epochs(estimate_in_context(run, free, ways=ways), run, question, ways=ways)
        bought = answer.budget_epochs
        if bought is None or epochs == (epochs := max(1, round(bought.epochs.mid))):
            break
    assert answer is not None
    return replace(answer, options={**answer.options, "budget_usd": str(question.budget_usd)})


def add_budget_epochs(
    answer: Estimate, context: EstimateContext, question: Question, *, ways: FitWays | None = None
) -> Estimate:
    """Add to an estimate how many epochs the budget buys on the paid offer of least total; the same if unknown."""
    paid = [
        (one.total_usd, row)
        for row in answer.takable
        if (one := answer.offers[row]).bill is not None and one.bill.nano[1] > 0 and one.total_usd is not None
    ]
    row, start = min(paid)[1] if paid else None, context.workload.total_epochs
    if question.budget_usd is None or row is None or not start or context.workload.samples is None:
        return answer
    unlimited = replace(question, budget_usd=None, deadline_s=None)
    narrow = replace(context.selection, offers=(answer.offers[row].selected,))

    @cache
    def price(epochs: int) -> Interval:
        run = replace(context, selection=narrow, workload=_with_epochs(context.workload, epochs))
        bill = estimate_in_context(run, unlimited, ways=ways).offers[0].bill
        return ZERO if bill is None else bill.usd

    ends = (lambda n: price(n).high, lambda n: price(n).mid, lambda n: price(n).low)
    low, mid, high = (_solve(end, question.budget_usd, start) for end in ends)
    number = f"about {mid:,} epochs ({low:,}–{high:,})" if mid else "less than one epoch"
    sentence = f"${question.budget_usd:g} buys {number} on {name_offer(answer.offers[row].offer)}."
    epochs = Interval(low=low, mid=mid, high=high)
    return replace(answer, budget_epochs=BudgetEpochs(offer=row, epochs=epochs, sentence=sentence))


def _with_epochs(workload: Workload, epochs: int) -> Workload:
    """Return the workload with another number of epochs."""
    if workload.total_epochs is not None:
        return with_total_epochs(workload, epochs)
    steps = compute_run_steps(samples=workload.samples, batch_size=workload.batch_size, epochs=epochs)
    return replace(workload, epochs=epochs, steps=steps)


def _solve(price: Callable[[int], float], budget_usd: float, start: int) -> int:
    """Return the largest number of epochs within a budget, about: their `price` is nearly linear in them.

    Example:
        >>> _solve(lambda epochs: 1.0 + 2.5 * epochs, 100.0, 10)
        39
    """
    first, second = start, 2 * start
    for _ in range(ROUNDS):
        slope = (price(second) - price(first)) / (second - first)
        if slope <= 0:
            return MAX_EPOCHS
        epochs = min(MAX_EPOCHS, max(0, int(first + (budget_usd - price(first)) / slope)))
        if epochs in (0, first, second):
            return epochs
        first, second = second, epochs
    return epochs


def estimate_model(
    model: Any,
    asked: ResolvedRequest,
    *,
    script_arguments: Sequence[str] = (),
    detailed: bool = False,
    shown: bool = False,
    compiling: StepCompiler | None = None,
) -> Estimate:
    """Estimate a model on all offers that a request selects.

    With `fit` the model is traced at more batch sizes, and in the ways to make it fit.

    Args:
        model: MODEL reference, or a Keras model.
        detailed: Whether to add the details of a report.
        shown: Whether to add what a measurement would make of the time, which takes a fifth of a second.
        compiling: Compiler of the step for every named accelerator; None for no compilation.

    Raises:
        GpuplanError: Any error that the user can fix.
    """
    question, request = asked.question, asked.request
    if request.fit:
        require_fittable(asked.options, compiling)
    with keep_models_built():
        context = build_context(model, asked, script_arguments=script_arguments, compiling=compiling)
        context = select_named_machines(context, question.filters)
        ways, prepare = None, partial(prepare_fit, context, model, question, script_arguments=script_arguments)
        if request.fit:
            question, ways = prepare()
        if is_length_open(context, question):
            answer = estimate_for_budget(context, question, ways=ways)
        else:
            answer = estimate_in_context(context, question, ways=ways)
            if request.measure and isinstance(model, str) and context.workload.mode == "train" and not compiling:
                known = measure_own_machine(context, answer, question, model=model, argv=script_arguments)
                if known is not None:
                    context, answer = known, estimate_in_context(known, question, ways=ways)
            if answer.taken is None:
                answer = add_budget_epochs(answer, context, question, ways=ways)
        if not (request.fit or compiling):
            answer = plan_what_fits(answer, context, prepare)
        if detailed:
            answer = replace(answer, details=build_report_details(context, answer, question))
        measuring = describe_measuring(answer, context) if shown else ""
        answer = replace(answer, decision=replace(answer.decision, measuring=measuring))
        return answer if context.workload.mode == "train" else _served(answer, context, model, asked.options)


def _served(answer: Estimate, context: EstimateContext, model: Any, options: WorkloadOptions) -> Estimate:
    """Add latency, throughput and cost of serving predictions to each offer."""
    one = context.workload if context.workload.batch_size == 1 else None
    if one is None and isinstance(model, str) and not model.endswith(".json"):
        one = trace_workload(model, options=replace(options, batch_size=1), script_arguments=())
    offers = add_serving(answer.offers, one, context.predictor)
    return replace(answer, offers=tuple(offers))


ACCELERATORS_SHOWN = 6
PAID_COLAB = "colab-payg"
EPOCHS_SHOWN = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
MOST_EPOCHS_TIMES = 10  # end of the curves, as a multiple of the requested epochs [-]


def build_report_details(context: EstimateContext, estimate: Estimate, question: Question) -> dict[str, Any]:
    """Return the member `details` of a plan: steps on a few accelerators, bills of the picks, cost by epochs."""
    picks = tuple(estimate.decision.roles())
    shown = (*picks, *estimate.recommendation.pareto, *estimate.best_per_devices())
    wanted = [estimate.offers[index].selected.accelerator for index in shown]
    found: dict[str, StepBreakdown] = {}  # on one device of each of the first distinct accelerators
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
    billed = ((row, estimate.offers[row].bill) for row in picks)
    return {
        "steps": to_plain(tuple(found.values())),
        "bills": [{"offer": row, "lines": [x.to_json() for x in bill.lines]} for row, bill in billed if bill],
        **_compute_curves(context, estimate, question),
    }


def _compute_curves(context: EstimateContext, estimate: Estimate, question: Question) -> dict[str, Any]:
    """Return cost by epochs and the points at which another alternative is the cheapest; empty if unknown."""
    asked = context.workload.epochs
    if asked is None or context.workload.samples is None or estimate.taken is None:
        return {"epochs": [], "turns": [], "colab": []}
    alternatives = select_alternatives(context, estimate, question=question)
    farthest = MOST_EPOCHS_TIMES * max(asked, 10)

    @cache
    def price(epochs: int) -> dict[str, Alternative]:
        """Return each alternative by name, the least total first."""
        return {one.name: one for one in alternatives.at(epochs, 1)}

    def find_cheaper(other: str, epochs: int) -> str:
        found = price(epochs)
        return PAID_COLAB if found[PAID_COLAB].total_usd <= found[other].total_usd else other

    def build_curve(name: str, row: int) -> dict[str, Any]:
        offer, costs = alternatives.offers[row].offer, [(n, price(n)[name].money_usd) for n in shown]
        points = [{"epochs": n, "usd_low": usd.low, "usd": usd.mid, "usd_high": usd.high} for n, usd in costs]
        return {"name": name, "instance_type": offer.instance_type, "points": points}

    shown = sorted({n for n in EPOCHS_SHOWN if n <= farthest} | {asked, farthest})
    paid = [name for name, one in price(asked).items() if name != PAID_COLAB and one.money_usd.mid > 0]
    rivals = paid if PAID_COLAB in alternatives.rows else []
    against = (find_crossovers(partial(find_cheaper, other), farthest=farthest) for other in rivals)
    turns = find_crossovers(lambda epochs: next(iter(price(epochs))), farthest=farthest)
    return {
        "epochs": [build_curve(name, row) for name, row in alternatives.rows.items()],
        "turns": [turn.to_json() for turn in turns],
        "colab": [turn.to_json() for turn in chain.from_iterable(against)],
    }


def add_serving(
    offers: Sequence[OfferEstimate], one: Workload | None, predictor: StepPredictor
) -> list[OfferEstimate]:
    """Add serving estimates; latency needs the model at batch size 1, and no tensor parallelism."""
    served = []
    for offer in offers:
        accelerator, step, serving = offer.selected.accelerator, None, None
        if one is not None and accelerator is not None and not offer.device_estimate.sharding.divides_products:
            step = predictor.step_time(one, accelerator, devices=min(1.0, offer.offer.devices))
        if offer.samples_per_s is not None:
            serving = ServingEstimate(
                latency_s=step.time_s if isinstance(step, StepTime) else None,
                per_s=offer.samples_per_s,
                usd_per_million=offer.usd_per_million_samples,
            )
        served.append(replace(offer, serving=serving))
    return served

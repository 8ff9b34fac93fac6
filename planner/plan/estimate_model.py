"""Estimate of a model on every offer: trace it, predict, price, rank; then what the user asks for besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..predict.multi_device.sharding import EVERY_SHARDING
from .context import build_context, build_resizer, trace_workload
from .cost_terms import CostTerms
from .estimate_workload import estimate_workload
from .question import EstimateContext, Question
from .result.estimate import Estimate
from .result.offer_estimate import OfferEstimate
from .script_layout import plan_copies, shard_to_fit

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .execution.fitting import FitWays

__all__ = ["estimate_model"]


def estimate_model(
    model: Any,
    question: Question,
    *,
    options: WorkloadOptions,
    script_arguments: Sequence[str] = (),
    catalog: Catalog | None = None,
    terms: CostTerms | None = None,
    profiles: Sequence[Path] = (),
    detailed: bool = False,
    best_batch: bool = False,
    fit: bool = False,
    compiling: StepCompiler | None = None,
) -> Estimate:
    """Estimate a model on all offers that a question selects.

    Args:
        model: MODEL reference, or a Keras model.
        question: Filters, order and limits.
        options: Tracing options of the run.
        script_arguments: Arguments of a training script (`sys.argv`).
        catalog: Catalog (``load_user_catalog(settings)``); None for the packaged one.
        terms: Costs and assumptions besides the training; None for those of the catalog.
        profiles: Files of `gpuplan profile` or `StepTimer`; saved runs are always used.
        detailed: Whether to add the details of a report.
        best_batch: Whether to estimate each offer also at the largest batch that fits, which traces the model
            at more batch sizes.
        fit: Whether to plan steps that do not fit in smaller passes or with recomputed activations, and sharded
            unless the question or the script says how; traces the model up to three more times, and up to five
            times for each number of devices that share products.
        compiling: Compiler of the step for every named accelerator; None for no compilation.

    Raises:
        GpuplanError: Any error that the user can fix.
    """
    if fit:
        _require_fittable(options, compiling)
    if compiling is not None:
        question = plan_copies(question)
    context = build_context(
        model,
        question,
        options=options,
        script_arguments=script_arguments,
        catalog=catalog,
        terms=terms,
        profiles=profiles,
        compiling=compiling,
    )
    ways = None
    if fit:
        question = shard_to_fit(question, context.workload)
        ways = _build_fit_ways(context, model, question, script_arguments=script_arguments)
    answer = _estimate(context, context.workload, question, ways)
    if best_batch:
        answer = _at_best_batch(answer, context, question)
    if detailed:
        from .details import build_report_details

        answer = replace(answer, details=build_report_details(context, answer, question))
    return answer if context.workload.mode == "train" else _served(answer, context, model, options)


def _require_fittable(options: WorkloadOptions, compiling: StepCompiler | None) -> None:
    """Raise UsageError for `--fit` beside a flag that fixes the step, or has no gradients to accumulate."""
    other = ""
    if compiling is not None:
        other = "`--compile`, which compiles the step as it is"
    elif options.mode == "infer":
        other = "`--mode infer`, which has no gradients"
    if other:
        raise UsageError(f"`--fit` cannot be combined with {other}", hint="leave out one of them")


def _estimate(
    context: EstimateContext, workload: Workload, question: Question, ways: FitWays | None = None
) -> Estimate:
    return estimate_workload(
        workload,
        selection=context.selection,
        predictor=context.predictor,
        question=question,
        terms=context.terms,
        resized=context.resized,
        feed=context.feed,
        ways=ways,
    )


def _build_fit_ways(
    context: EstimateContext, model: Any, question: Question, *, script_arguments: Sequence[str]
) -> FitWays:
    """Return the ways to make the step of the model fit, traced on first use."""
    from .execution.fitting import DividedModel, FitWays

    def trace(options: WorkloadOptions) -> tuple[Workload, Callable[[int], Workload]]:
        workload = trace_workload(model, options=options, script_arguments=script_arguments)
        return workload, build_resizer(workload, model, options=options, script_arguments=script_arguments)

    def build(resized: Callable[[int], Workload], options: WorkloadOptions, **others: Any) -> FitWays:
        trace_recomputed = cache(lambda: trace(replace(options, remat=True))[1])

        def recomputed(batch_size: int) -> Workload:
            return trace_recomputed()(batch_size)

        return FitWays(resized=resized, recomputed=None if options.remat else recomputed, **others)

    @cache
    def divide(devices: int) -> DividedModel:
        options = replace(context.options, tensor=devices)
        least, traced = replace(options, batch_size=1, remat=True), cache(lambda: trace(options))

        def resized(batch_size: int) -> Workload:
            return traced()[1](batch_size)

        return DividedModel(
            trace=lambda: traced()[0],
            trace_least=cache(lambda: trace(least)[0]),
            resized=resized,
            ways=build(resized, options),
        )

    if context.resized is None:
        raise _needs_sizes("--fit", context.workload)
    open_choice = question.shard == EVERY_SHARDING
    return build(context.resized, context.options, divided=divide if open_choice else None)


def _at_best_batch(answer: Estimate, context: EstimateContext, question: Question) -> Estimate:
    """Add to each offer an estimate at the largest batch that fits."""
    from .execution.best_batch_search import add_best_batch, choose_workloads_to_compile
    from .result.best_batch import choose_batch_sizes, with_run_length_of

    own, resized = context.workload, context.resized
    if resized is None:
        raise _needs_sizes("--best-batch", own)

    def at(size: int) -> Sequence[OfferEstimate]:
        return _estimate(context, with_run_length_of(resized(size), own), question).offers

    largest = {one.device_estimate.memory.largest_batch_size for one in answer.offers}
    sizes = choose_batch_sizes(largest, own=own.batch_size)
    if context.compile_more is not None:
        context.compile_more(choose_workloads_to_compile(answer.offers, sizes, resized, own=own.batch_size))
    offers = add_best_batch(answer.offers, sizes, at)
    return replace(answer, offers=tuple(offers))


def _needs_sizes(flag: str, workload: Workload) -> UsageError:
    return UsageError(
        f"`{flag}` needs `{workload.model}` at other batch sizes",
        hint="name the model itself instead of a saved workload",
    )


def _served(answer: Estimate, context: EstimateContext, model: Any, options: WorkloadOptions) -> Estimate:
    """Add latency, throughput and cost of serving predictions to each offer."""
    from .execution.serving import add_serving

    one = context.workload if context.workload.batch_size == 1 else None
    if one is None and isinstance(model, str) and not model.endswith(".json"):
        one = trace_workload(model, options=replace(options, batch_size=1), script_arguments=())
    offers = add_serving(answer.offers, one, context.selection.offers, context.predictor)
    return replace(answer, offers=tuple(offers))

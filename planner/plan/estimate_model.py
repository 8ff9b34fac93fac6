"""Estimate of a model on every offer: trace, predict, price and rank; then the optional parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..workload.capture.kept_models import keep_models_built
from .context import build_context, trace_workload
from .cost_terms import CostTerms
from .estimate_workload import estimate_in_context
from .fit_ways import build_sizes_error, prepare_fit, require_fittable
from .question import EstimateContext, Question
from .result.estimate import Estimate
from .result.offer_estimate import OfferEstimate

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler


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
            unless the question or the script says how; traces the model as often as that can make it fit.
        compiling: Compiler of the step for every named accelerator; None for no compilation.

    Raises:
        GpuplanError: Any error that the user can fix.
    """
    if fit:
        require_fittable(options, compiling)
    with keep_models_built() if fit or best_batch else nullcontext():
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
            question, ways = prepare_fit(context, model, question, script_arguments=script_arguments)
        answer = estimate_in_context(context, question, ways=ways)
        if best_batch:
            answer = _at_best_batch(answer, context, question)
        if detailed:
            from .details import build_report_details

            answer = replace(answer, details=build_report_details(context, answer, question))
        return answer if context.workload.mode == "train" else _served(answer, context, model, options)


def _at_best_batch(answer: Estimate, context: EstimateContext, question: Question) -> Estimate:
    """Add to each offer an estimate at the largest batch that fits."""
    from .execution.best_batch_search import add_best_batch
    from .result.best_batch import choose_batch_sizes, with_run_length_of

    own, resized = context.workload, context.resized
    if resized is None:
        raise build_sizes_error("--best-batch", own)

    def at(size: int) -> Sequence[OfferEstimate]:
        workload = with_run_length_of(resized(size), own)
        return estimate_in_context(replace(context, workload=workload), question).offers

    largest = {one.device_estimate.memory.largest_batch_size for one in answer.offers}
    sizes = choose_batch_sizes(largest, own=own.batch_size)
    offers = add_best_batch(answer.offers, sizes, at)
    return replace(answer, offers=tuple(offers))


def _served(answer: Estimate, context: EstimateContext, model: Any, options: WorkloadOptions) -> Estimate:
    """Add latency, throughput and cost of serving predictions to each offer."""
    from .execution.serving import add_serving

    one = context.workload if context.workload.batch_size == 1 else None
    if one is None and isinstance(model, str) and not model.endswith(".json"):
        one = trace_workload(model, options=replace(options, batch_size=1), script_arguments=())
    offers = add_serving(answer.offers, one, context.predictor)
    return replace(answer, offers=tuple(offers))

"""Estimate of one workload on every offer, also in the ways in which `--fit` may change its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..predict.sharding import EVERY_SHARDING, format_sharding
from ..units import SECONDS_PER_HOUR
from ..workload.capture.tracing_process import keep_models_built
from ..workload.resize import Resizer
from .bill import INPUT_STALLS
from .context import build_resizer, follow_script, limit_to_one_device, trace_workload, uses_one_device
from .cost_terms import NO_TERMS, CostTerms
from .decision import decide, describe_misfit
from .estimate import Estimate, Recommendation
from .estimate_device import DeviceEstimator, FitWays, Resize
from .improvements import find_improvements
from .input_pipeline import InputPipeline, guess_jpeg_pipeline, list_feeds, with_input_bottleneck
from .memory import UNSHARDED
from .offer_table import price_offers
from .question import EstimateContext, Question, Selection, require_run_length
from .ranking import find_undominated, rank_offers, recommend

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .device_estimate import DeviceEstimate


def estimate_workload(
    workload: Workload,
    *,
    selection: Selection,
    predictor: StepPredictor,
    question: Question,
    terms: CostTerms = NO_TERMS,
    resized: Callable[[int], Workload] | None = None,
    feed: InputPipeline | None = None,
    ways: FitWays | None = None,
) -> Estimate:
    """Estimate time, cost and memory of a workload on every offer of a selection.

    Args:
        predictor: Predictor of step times, called once for each kind and number of devices.
        terms: Costs and assumptions besides the training; none by default.
        resized: Function that returns the workload at another batch size; None scales the one that is known.
        feed: Input pipeline measured by a profile; `question.feed` takes precedence.
        ways: Smaller passes and recomputation for steps that do not fit; None to leave them as they are.

    Raises:
        UsageError: A deadline or a budget is given for a run of unknown length.
    """
    from .._version import __version__

    if question.has_limits:
        require_run_length(workload, "`--budget`" if question.deadline_s is None else "`--deadline`")
    _require_training(workload, question)
    question, one_device = follow_script(question, workload), uses_one_device(question, workload)
    estimator = DeviceEstimator(
        predictor,
        scaling=question.scaling or "strong",
        resized=resized or Resizer(workload),
        shardings=question.shard or UNSHARDED,
        ways=ways,
    )
    feeds = list_feeds(question.feed, workload, terms, feed)
    is_known = bool(feeds) or question.feed is not None or workload.input is not None
    priced = price_offers(
        workload,
        selection,
        terms=terms,
        spot=question.spot,
        use=limit_to_one_device if one_device else None,
        estimate_device=partial(estimator.estimate, workload),
        feeds=feeds,
        pictures=None if is_known else guess_jpeg_pipeline(workload, terms),
    )
    ranked = rank_offers(priced, question, one_device=one_device)
    decision = decide(ranked, question, workload=workload, currency=terms.currency)
    if decision.recommended is not None:
        taken = ranked[decision.recommended]
        distributed = None
        if one_device and (several := _select_several_devices(selection, taken.offer)):
            other = replace(question, scaling="strong")
            distributed = estimate_workload(
                workload, selection=several, predictor=predictor, question=other, terms=terms
            ).taken

        def estimate(other: Workload, pipeline: InputPipeline | None = None) -> DeviceEstimate:
            used = feeds if pipeline is None else (pipeline,)
            found = estimator.estimate(other, taken.selected)
            return with_input_bottleneck(found, taken.offer, used, taken.selected.accelerator)

        improvements = find_improvements(
            workload, taken, estimate, distributed=distributed, feed=feeds[0] if feeds else None
        )
        decision = replace(decision, improvements=improvements)
    return Estimate(
        workload=workload,
        offers=ranked,
        recommendation=Recommendation() if question.refuses(workload) else recommend(ranked, question),
        decision=decision,
        options={**_echo(question), "fit": ways is not None},
        terms=terms,
        catalog_as_of=selection.catalog_as_of,
        version=__version__,
        not_billed=() if is_known else (INPUT_STALLS,),
        unmatched=selection.unmatched,
        takable=tuple(ranked.takable.nonzero()[0].tolist()),
        undominated=find_undominated(ranked),
    )


def _select_several_devices(selection: Selection, taken: Offer) -> Selection | None:
    """Return the offers of the same provider and accelerator with several devices; None without any."""
    alike = (taken.provider, taken.accelerator)
    several = (one for one in selection.offers if one.offer.devices > 1)
    offers = tuple(one for one in several if (one.offer.provider, one.offer.accelerator) == alike)
    return replace(selection, offers=offers) if offers else None


def estimate_in_context(context: EstimateContext, question: Question, *, ways: FitWays | None = None) -> Estimate:
    """Return `estimate_workload` of a context's workload."""
    return estimate_workload(
        context.workload,
        selection=context.selection,
        predictor=context.predictor,
        question=question,
        terms=context.terms,
        resized=context.resized,
        feed=context.feed,
        ways=ways,
    )


def _require_training(workload: Workload, question: Question) -> None:
    """Raise UsageError if gradients or optimizer state are to be divided without training."""
    divided = any(one.shards_optimizer for one in question.shard or ())
    if workload.mode != "train" and divided:
        raise UsageError(
            "`--shard` divides a training step; inference has no gradients and no optimizer to divide",
            hint="leave out `--shard`, or use `--mode train`",
        )


def _echo(question: Question) -> dict[str, Any]:
    """Return the question as plain JSON types."""
    budget_usd, spot, filters = question.budget_usd, question.spot, asdict(question.filters).items()
    return {
        **{key: list(value) if isinstance(value, tuple) else value for key, value in filters},
        "sort": question.sort,
        "spot": {
            "life_s": None if spot.up_hours is None else spot.up_hours * SECONDS_PER_HOUR,
            "checkpoint_every_s": spot.interval_s,
            "checkpoint_s": spot.save_s,
            "restart_s": spot.restart_s,
        },
        "deadline_s": question.deadline_s,
        "feed": question.feed,
        "scaling": question.scaling,
        "shard": format_sharding(question.shard or UNSHARDED),
        "hour_value_usd": question.hour_value_usd,
        "wait_value_usd": question.wait_value_usd,
        "quota": question.quotas is not None,
        "budget_usd": None if budget_usd is None else str(Decimal(str(budget_usd))),
    }


def prepare_fit(
    context: EstimateContext, model: Any, question: Question, *, script_arguments: Sequence[str] = ()
) -> tuple[Question, FitWays]:
    """Return the question with every sharding to try unless one is stated, and the ways to make a step fit.

    The model is traced for each on first use.

    Raises:
        UsageError: The workload is not available at other batch sizes.
    """
    if context.resized is None:
        raise UsageError(
            f"`--fit` needs `{context.workload.model}` at other batch sizes",
            hint="name the model itself instead of a saved workload",
        )
    if question.shard is None and context.workload.layout is None:
        question = replace(question, shard=EVERY_SHARDING)

    def trace(options: WorkloadOptions) -> tuple[Workload, Resize]:
        workload = trace_workload(model, options=options, script_arguments=script_arguments)
        return workload, build_resizer(workload, model, options=options, script_arguments=script_arguments)

    def build(resized: Resize, options: WorkloadOptions, **others: Any) -> FitWays:
        trace_recomputed = cache(lambda: trace(replace(options, remat=True))[1])

        def recomputed(batch_size: int) -> Workload:
            return trace_recomputed()(batch_size)

        return FitWays(resized=resized, recomputed=None if options.remat else recomputed, **others)

    @cache
    def divide(devices: int) -> tuple[Workload, FitWays]:
        options = replace(context.options, tensor=devices)
        workload, resized = trace(options)
        return workload, build(resized, options)

    open_choice = question.shard == EVERY_SHARDING
    return question, build(context.resized, context.options, divided=divide if open_choice else None)


def plan_what_fits(
    answer: Estimate, context: EstimateContext, prepare: Callable[[], tuple[Question, FitWays]]
) -> Estimate:
    """Return the estimate; of a training that fits nowhere, with `--fit` where that helps, which it says first."""
    misfit = describe_misfit(answer)
    if not misfit or context.resized is None:
        return answer
    with keep_models_built():
        question, ways = prepare()
        fitted = estimate_in_context(context, question, ways=ways)
    if fitted.taken is None:
        return answer
    return replace(fitted, decision=replace(fitted.decision, misfit=misfit))


def require_fittable(options: WorkloadOptions, compiling: StepCompiler | None = None) -> None:
    """Raise UsageError for `--fit` together with a flag that fixes the step or computes no gradients."""
    if compiling is not None or options.mode == "infer":
        compiles = "`--compile`, which compiles the step as it is"
        other = "`--mode infer`, which has no gradients" if compiling is None else compiles
        raise UsageError(f"`--fit` cannot be combined with {other}", hint="leave out one of them")

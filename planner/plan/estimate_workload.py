"""Estimate of one workload on every offer, also in the ways in which `--fit` may change its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..predict.resize import Resizer
from ..predict.sharding import EVERY_SHARDING, format_sharding
from ..units import SECONDS_PER_HOUR
from ..workload.capture.tracing_process import keep_models_built
from .bill import INPUT_STALLS
from .context import build_resizer, follow_script, limit_to_one_device, trace_workload, uses_one_device
from .decision import decide, describe_misfit
from .estimate import Estimate, Recommendation
from .estimate_device import DeviceEstimator, FitWays, Resize
from .improvements import find_improvements
from .input_pipeline import guess_jpeg_pipeline, list_feeds
from .memory import UNSHARDED
from .offer_table import price_offers
from .question import EstimateContext, Question, require_run_length
from .ranking import find_undominated, rank_offers, recommend

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .offer_estimate import OfferEstimate


UNDIVIDED = "`--shard` divides a training step; inference has no gradients and no optimizer to divide"


def estimate_in_context(context: EstimateContext, question: Question, *, ways: FitWays | None = None) -> Estimate:
    """Estimate time, cost and memory of a workload on every offer of a selection.

    A context that has no other batch sizes has its one scaled. `ways` are smaller passes and recomputation for
    steps that do not fit; None leaves them as they are.

    Raises:
        UsageError: A limit for a run of unknown length, or a division of what inference does not have.
    """
    from .._version import __version__

    workload, terms = context.workload, context.terms
    if question.has_limits:
        require_run_length(workload, "`--budget`" if question.deadline_s is None else "`--deadline`")
    if workload.mode != "train" and any(one.shards_optimizer for one in question.shard or ()):
        raise UsageError(UNDIVIDED, hint="leave out `--shard`, or use `--mode train`")
    question, one_device = follow_script(question, workload), uses_one_device(question, workload)
    feeds = list_feeds(question.feed, workload, terms, context.feed)
    is_known = bool(feeds) or question.feed is not None or workload.input is not None
    estimator = DeviceEstimator(
        context.predictor,
        scaling=question.scaling or "strong",
        resized=context.resized or Resizer(workload),
        shardings=question.shard or UNSHARDED,
        ways=ways,
    )
    pictures = None if is_known else guess_jpeg_pipeline(workload, terms)
    estimate_device, use = partial(estimator.estimate, workload), limit_to_one_device if one_device else None
    priced = price_offers(context, question.spot, estimate_device, use=use, feeds=feeds, pictures=pictures)
    ranked = rank_offers(priced, question, one_device=one_device)
    decision = decide(ranked, question, workload=workload, currency=terms.currency)
    if decision.recommended is not None:
        taken = ranked[decision.recommended]
        distributed = _take_several_devices(context, question, taken.offer) if one_device else None
        improvements = find_improvements(workload, taken, estimator.estimate, distributed=distributed, feeds=feeds)
        decision = replace(decision, improvements=improvements)
    return Estimate(
        workload=workload,
        offers=ranked,
        recommendation=Recommendation() if question.refuses(workload) else recommend(ranked, question),
        decision=decision,
        options={**_echo(question), "fit": ways is not None},
        terms=terms,
        catalog_as_of=context.selection.catalog_as_of,
        version=__version__,
        not_billed=() if is_known else (INPUT_STALLS,),
        unmatched=context.selection.unmatched,
        takable=tuple(ranked.takable.nonzero()[0].tolist()),
        undominated=find_undominated(ranked),
    )


def _take_several_devices(context: EstimateContext, question: Question, taken: Offer) -> OfferEstimate | None:
    """Return the best offer of a provider and accelerator if the script used all its devices; None without one."""
    alike = (taken.provider, taken.accelerator)
    several = (one for one in context.selection.offers if one.offer.devices > 1)
    offers = tuple(one for one in several if (one.offer.provider, one.offer.accelerator) == alike)
    if not offers:
        return None
    other = replace(context, selection=replace(context.selection, offers=offers), resized=None, feed=None)
    return estimate_in_context(other, replace(question, scaling="strong")).taken


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

    trace_as = partial(trace_workload, model, script_arguments=script_arguments)

    def trace(options: WorkloadOptions) -> tuple[Workload, Resize]:
        workload = trace_as(options=options)
        return workload, build_resizer(workload, trace_as, options)

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

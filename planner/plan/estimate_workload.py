"""Estimate of one workload on every offer: time, bill, memory and recommendation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..predict.keras_defaults import select_executed_workload
from ..predict.multi_device.sharding import Sharding, format_sharding
from ..predict.step_time import NoPrediction, StepTime
from ..predict.utilization import compute_peak_time_s
from ..units import SECONDS_PER_HOUR
from .compare.decision import decide
from .compare.ranking import rank_offers, recommend
from .cost_terms import NO_TERMS, CostTerms
from .execution.input_pipeline import InputPipeline, guess_jpeg_pipeline, parse_feed
from .execution.memory import MemoryVerdict, available_bytes, memory_verdict, stated_verdict
from .execution.memory_parts import compute_batch_bytes, find_remedies
from .execution.run_length import count_replicas
from .execution.scaling_mode import BatchScaling
from .execution.sharding_choice import (
    UNSHARDED,
    ShardingChoice,
    choose_least_sharding,
    find_sharding_remedy,
    list_memory_parts,
)
from .pipelined_step import predict_pipelined_step
from .pricing.bill import INPUT_STALLS
from .pricing.offers import price_offers
from .question import Question
from .result.device_estimate import DeviceEstimate, combine_phases
from .result.estimate import Estimate
from .script_layout import follow_script
from .select import OfferContext, Selection
from .step_on_devices import predict_step_on_devices

if TYPE_CHECKING:
    from ..predict.step_time import StepPredictor
    from ..units import Interval
    from ..workload.model import Workload

__all__ = ["build_division", "estimate_on_device", "estimate_workload"]


WEAK = BatchScaling()
COPIES = ShardingChoice()


def estimate_workload(
    workload: Workload,
    *,
    selection: Selection,
    predictor: StepPredictor,
    question: Question,
    terms: CostTerms = NO_TERMS,
    resized: Callable[[int], Workload] | None = None,
    feed: InputPipeline | None = None,
) -> Estimate:
    """Estimate time, cost and memory of a workload on every offer of a selection.

    Args:
        workload: Workload to estimate.
        selection: Offers that pass the question's filters.
        predictor: Predictor of step times, called once for each kind and number of devices.
        question: Order and limits.
        terms: Costs and assumptions besides the training; none by default.
        resized: Function that returns the workload at another batch size; required for strong scaling.
        feed: Input pipeline measured by a profile; `question.feed` takes precedence.

    Raises:
        UsageError: A deadline or a budget is given for a run of unknown length.
    """
    from .._version import __version__

    _require_run_length(workload, question)
    _require_training(workload, question)
    question = follow_script(question, workload)
    spread, choice = build_division(question, resized=resized)
    priced = price_offers(
        workload,
        selection,
        terms=terms,
        spot=question.spot,
        estimate_device=lambda one: estimate_on_device(workload, one, predictor, spread, choice),
        feed=feed if question.feed is None else parse_feed(question.feed, workload, terms),
        pictures=guess_jpeg_pipeline(workload, terms) if question.feed is None and feed is None else None,
    )
    ranked = rank_offers(priced, question.sort)
    return Estimate(
        workload=workload,
        offers=ranked.offers,
        recommendation=recommend(ranked, question),
        decision=decide(ranked, question, workload=workload, terms=terms),
        options=_echo(question),
        terms=terms,
        catalog_as_of=selection.catalog_as_of,
        version=__version__,
        not_billed=() if feed is not None or question.feed is not None else (INPUT_STALLS,),
        unmatched=selection.unmatched,
    )


def build_division(
    question: Question, *, resized: Callable[[int], Workload] | None
) -> tuple[BatchScaling, ShardingChoice]:
    """Return the division of the batch and of the model over several devices.

    Args:
        question: Completed by `follow_script`.
        resized: Function that returns the workload at another batch size.
    """
    spread = BatchScaling(scaling=question.scaling or "weak", resized=resized)
    return spread, ShardingChoice(question.shard or UNSHARDED)


def estimate_on_device(
    workload: Workload,
    selected: OfferContext,
    predictor: StepPredictor,
    spread: BatchScaling = WEAK,
    choice: ShardingChoice = COPIES,
) -> DeviceEstimate:
    """Estimate a workload on an offer's devices, independent of the offer's price.

    Args:
        workload: Workload to estimate.
        selected: Offer with its device; a CPU host also provides the memory.
        predictor: Predictor of step times.
        spread: Division of the batch over several devices.
        choice: Shardings to try, of which the first that fits is taken.
    """
    longest = next(index for index, one in enumerate(workload.phases) if one.fit_call == workload.fit_call)
    tried = []
    for sharding in choice.list_applicable(devices=count_replicas(selected.offer.devices)):
        phases = [
            _estimate_phase(one, selected, predictor, spread, choice=choice, sharding=sharding)
            for one in workload.phases
        ]
        tried.append(combine_phases(phases, longest=longest))
    return choose_least_sharding(tried)


def _estimate_phase(
    workload: Workload,
    selected: OfferContext,
    predictor: StepPredictor,
    spread: BatchScaling,
    *,
    choice: ShardingChoice,
    sharding: Sharding,
) -> DeviceEstimate:
    from ..offers.compat import load_compatibility

    matrix = load_compatibility()
    accelerator, devices = selected.accelerator, count_replicas(selected.offer.devices)
    copies = choice.count_replicas(workload, sharding, devices=selected.offer.devices)
    parts = "replicas" if sharding.divides_layers or sharding.divides_products else "devices"
    share = spread.split(workload, copies, sharers=parts)
    run, whole = share.run, share.workload or workload
    each = choice.get_device_workload(whole, sharding, devices=devices)
    peak_time_s = None
    if accelerator is None:
        step: StepTime | NoPrediction = NoPrediction(
            f"the catalog does not describe `{selected.offer.accelerator}`"
        )
    else:
        if sharding.divides_layers and share.workload is not None:
            each, step = predict_pipelined_step(
                whole,
                sharding,
                selected,
                accelerator,
                predictor,
                resize=spread.resize,
                known=choice.stages,
            )
        else:
            step = predict_step_on_devices(
                share, selected, accelerator, predictor, whole=whole, each=each, sharding=sharding
            )
        sharers = sharding.ways if sharding.divides_layers else 1
        peak_time_s = compute_peak_time_s(each, accelerator, share=min(sharers, selected.offer.devices))
        whole, each = (select_executed_workload(one, accelerator) for one in (whole, each))
    memory = _check_memory(each, selected, step)
    sharded = find_sharding_remedy(whole, memory, sharding=sharding, devices=devices)
    return DeviceEstimate(
        run=run,
        step_time=step,
        train_time_s=_compute_train_time(step, run.steps),
        memory=memory,
        remedies=find_remedies(each, memory, sharded=sharded),
        compatibility="" if accelerator is None else matrix.note(accelerator, workload.precision),
        runs=None if accelerator is None else matrix.runs_keras(accelerator),
        sharding=sharding,
        tokens_per_sample=workload.tokens_per_sample,
        peak_time_s=peak_time_s,
        memory_parts=list_memory_parts(whole, each, sharding, devices),
    )


def _compute_train_time(step: StepTime | NoPrediction, steps: int | None) -> Interval | None:
    """Return the time of all steps; None if their time or number is unknown [s]."""
    return step.time_s.scaled(steps) if isinstance(step, StepTime) and steps is not None else None


def _check_memory(each: Workload, selected: OfferContext, step: StepTime | NoPrediction) -> MemoryVerdict:
    """Check the memory of one device, by the accelerator's compiler where it compiled the step."""
    memory = memory_verdict(
        fixed_bytes=each.memory.compute_fixed_bytes(compiled=each.compiled),
        batch_bytes=compute_batch_bytes(each),
        batch_size=each.batch_size,
        available_bytes=_device_bytes(selected),
    )
    if isinstance(step, StepTime) and step.memory is not None:
        memory = stated_verdict(memory, needed_bytes=step.memory.needed_bytes, fits=step.memory.fits)
    return memory


def _device_bytes(selected: OfferContext) -> int | None:
    """Return the usable memory of one device; for a CPU host, that of the host [bytes]."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None:
        return None
    if accelerator.kind == "cpu":
        return available_bytes(memory_gib=offer.memory_gib, usable_gib=None)
    return available_bytes(
        memory_gib=accelerator.memory_gib, usable_gib=accelerator.usable_gib, share=offer.devices
    )


def _require_run_length(workload: Workload, question: Question) -> None:
    """Raise UsageError if a deadline or budget is given for a run of unknown length."""
    limits = {"--deadline": question.deadline_s, "--budget": question.budget_usd}
    asked_for = [flag for flag, limit in limits.items() if limit is not None]
    known = workload.steps is not None or (workload.samples is not None and workload.epochs is not None)
    if asked_for and not known:
        raise UsageError(
            f"`{asked_for[0]}` needs the length of the run, which `{workload.model}` does not state",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )


def _require_training(workload: Workload, question: Question) -> None:
    """Raise UsageError if gradients, optimizer state or both passes are to be divided without training."""
    divided = any(one.shards_optimizer or one.divides_layers for one in question.shard or ())
    if workload.mode != "train" and divided:
        raise UsageError(
            "`--shard` divides a training step; inference has no gradients and no optimizer to divide",
            hint="leave out `--shard`, or use `--mode train`",
        )


def _echo(question: Question) -> dict[str, Any]:
    """Return the question as plain JSON types."""
    budget_usd = question.budget_usd
    filters = asdict(question.filters).items()
    return {
        **{key: list(value) if isinstance(value, tuple) else value for key, value in filters},
        "sort": question.sort,
        "spot": {
            "life_s": None if question.spot.up_hours is None else question.spot.up_hours * SECONDS_PER_HOUR,
            "checkpoint_every_s": question.spot.interval_s,
            "checkpoint_s": question.spot.save_s,
            "restart_s": question.spot.restart_s,
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

"""Division of a model in stages on the devices of an offer, and the step that they take as a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError
from ..predict.breakdown import share_kernel_times
from ..predict.coefficients import load_coefficients
from ..predict.keras_defaults import select_executed_workload
from ..predict.multi_device.interconnect import build_host_spec
from ..predict.multi_device.pipeline_schedule import compute_pipeline_s, cut_in_stages
from ..predict.multi_device.pipeline_step import (
    PipelineLinks,
    PipelineTraffic,
    find_pipeline_links,
    scale_to_pipeline,
)
from ..predict.step_time import NoPrediction, StepTime
from .execution.fitting import list_divisors
from .execution.memory_parts import compute_batch_bytes
from .execution.stage_memory import Stage, build_pipeline_workload, compute_shared_bytes
from .script_layout import count_mesh_devices

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..offers.rows import Accelerator
    from ..predict.multi_device.sharding import Sharding
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from .execution.stage_memory import StageWorkloads
    from .select import OfferContext

PLAN_SHARDS = "`--shard fsdp` divides weights, gradients and optimizer among any number of devices"


class PipelinedStep(NamedTuple):
    """Work and memory of a device, and the step of all; the whole model's where it cannot be divided."""

    each: Workload
    step: StepTime | NoPrediction
    micro_batch_size: int | None = None


class StageCut(NamedTuple):
    """Stages of a model at the size of a micro-batch, with the passes and transfers of the slowest."""

    micro_batch: Workload
    micro_batches: int
    stages: tuple[Stage, ...]
    slowest: Stage
    time: StepTime
    transfer_s: float


def predict_pipelined_step(
    whole: Workload,
    sharding: Sharding,
    selected: OfferContext,
    accelerator: Accelerator,
    predictor: StepPredictor,
    *,
    resize: Callable[[Workload, int], Workload | None],
    fits: Callable[[Workload], bool],
    known: StageWorkloads,
) -> PipelinedStep:
    """Return the step of an offer's devices as pipelines.

    The batch of a replica is divided in as many micro-batches, all of one size, as give the least time of those
    numbers with which the fullest device has enough memory; where none does, as need the least memory.

    Args:
        whole: The model at the batch size of a replica.
        sharding: The pipeline.
        selected: Offer with its links.
        accelerator: Each of its devices.
        predictor: Predictor of step times.
        resize: Function that returns the model at another batch size; None if it is not available at others.
        fits: Whether the work of a device fits on it.
        known: Workloads of stages, which several accelerators share.
    """
    reason = _refuse(whole, sharding, selected, accelerator)
    if reason is not None:
        return PipelinedStep(whole, reason)
    offer, stages = selected.offer, sharding.ways
    replicas = int(offer.devices) // stages
    machine = build_host_spec(selected.links)
    links = find_pipeline_links(
        accelerator, stages=stages, replicas=replicas, machine=machine, hosts=offer.hosts
    )
    if links is None:
        where = f"{offer.hosts} such machines" if offer.hosts > 1 else f"{accelerator.name} devices"
        return PipelinedStep(whole, NoPrediction(f"the rate of the link between {where} is not known"))
    divider = PipelineDivider(accelerator, predictor, links, known)
    ranked = divider.rank_micro_batches(whole, resize)
    if isinstance(ranked, NoPrediction):
        return PipelinedStep(whole, ranked)
    tried = []
    for micro_batches in ranked:
        size = whole.batch_size // micro_batches
        cut = divider.cut(resize(whole, size) or whole, micro_batches)
        if isinstance(cut, NoPrediction):
            return PipelinedStep(whole, cut)
        each = _build_fullest(whole, cut, accelerator)
        if fits(each):
            return PipelinedStep(each, divider.predict(cut, sharding), size)
        tried.append((_compute_needed_bytes(each, accelerator), each, cut, size))
    _, each, cut, size = min(tried, key=lambda one: one[0])
    return PipelinedStep(each, divider.predict(cut, sharding), size)


def _refuse(
    whole: Workload, sharding: Sharding, selected: OfferContext, accelerator: Accelerator
) -> NoPrediction | None:
    """Return why a model cannot be divided in stages on an offer; None if it can."""
    calls, devices, stages = whole.layer_calls, selected.offer.devices, sharding.ways
    if devices % stages:
        divided = f"`{sharding}` divides the model over {stages} devices, not {devices:g}"
        return NoPrediction(divided, hint=PLAN_SHARDS)
    if count_mesh_devices(selected.offer) != devices:
        return NoPrediction(
            f"stages on the cores of {accelerator.name} chips are not modelled", hint=PLAN_SHARDS
        )
    if calls is None:
        return NoPrediction(
            f"the order of the layers of `{whole.model}` is not known",
            hint="trace the model itself, on JAX, with this version",
        )
    if len(calls.names) < stages:
        fewer = f"`{whole.model}` has {len(calls.names)} layers, fewer than {stages} stages"
        return NoPrediction(fewer, hint=PLAN_SHARDS)
    return None


@dataclass(frozen=True, slots=True)
class PipelineDivider:
    """Division of models in stages on one kind of devices and links.

    Args:
        accelerator: Each of the devices.
        predictor: Predictor of step times.
        links: Links between the stages.
        known: Workloads of stages, which several accelerators share.
    """

    accelerator: Accelerator
    predictor: StepPredictor
    links: PipelineLinks
    known: StageWorkloads

    def rank_micro_batches(
        self, whole: Workload, resize: Callable[[Workload, int], Workload | None]
    ) -> list[int] | NoPrediction:
        """Return the numbers of micro-batches, fastest first, as if all stages took equally long [-].

        Many small ones wait less, and keep a device less busy.
        """
        found: dict[int, float] = {}
        for number in list_divisors(whole.batch_size):
            try:
                micro_batch = resize(whole, whole.batch_size // number)
            except UsageError as problem:  # a saved workload, or a model whose inputs fix the batch size
                return NoPrediction(
                    f"micro-batches need other batch sizes: {problem}", hint=problem.hint or ""
                )
            if micro_batch is None:
                return NoPrediction(f"micro-batches need `{whole.model}` at other batch sizes")
            step = self._predict_without_limits(micro_batch)
            if isinstance(step, NoPrediction):
                return step
            slot_s = step.time_s.mid / self.links.stages + 2 * self.links.compute_boundary_s(0, 0.0)
            found[number] = compute_pipeline_s(slot_s, stages=self.links.stages, micro_batches=number)
        return sorted(found, key=lambda number: found[number])

    def _predict_without_limits(self, micro_batch: Workload) -> StepTime | NoPrediction:
        """Return the step of the whole model if it had the memory of all devices."""
        mean = self.known.get_mean_device(micro_batch, stages=self.links.stages)
        return self.predictor.step_time(mean, self.accelerator)

    def cut(self, micro_batch: Workload, micro_batches: int) -> StageCut | NoPrediction:
        """Return the partition whose slowest stage is the fastest, by predicted times of kernels and transfers."""
        calls = select_executed_workload(micro_batch, self.accelerator).layer_calls
        costs_s = self._predict_calls_s(micro_batch)
        if costs_s is None or calls is None:
            return NoPrediction(f"the times of the layers of `{micro_batch.model}` are not known")
        transfers_s = [
            [self.links.compute_boundary_s(boundary, size) for size in calls.crossing_bytes]
            for boundary in range(self.links.stages - 1)
        ]
        bounds = cut_in_stages(costs_s, transfers_s)
        stages = Stage.list_between(bounds, micro_batches=micro_batches)
        sent_s = [0.0, *(row[bound] for row, bound in zip(transfers_s, bounds[1:-1], strict=True)), 0.0]
        around_s = [sum(sent_s[number : number + 2]) for number in range(len(stages))]
        slowest = max(stages, key=lambda one: sum(costs_s[one.first : one.end]) + around_s[one.number])
        passes = self.known.get_stage(micro_batch, slowest, updates=False)
        time = self.predictor.step_time(passes, self.accelerator)
        if isinstance(time, NoPrediction):
            return time
        return StageCut(micro_batch, micro_batches, stages, slowest, time, around_s[slowest.number])

    def _predict_calls_s(self, micro_batch: Workload) -> list[float] | None:
        """Return the time of the kernels of each call of a layer; the first one waits for the batch [s]."""
        times_s = share_kernel_times(micro_batch, self.accelerator, load_coefficients())
        step = self._predict_without_limits(micro_batch)
        if times_s is None or isinstance(step, NoPrediction) or micro_batch.layer_calls is None:
            return None
        costs_s = [0.0] * len(micro_batch.layer_calls.names)
        costs_s[0] = step.parts_s.get("input", 0.0)
        for op, time_s in times_s:
            if op.layer_call >= 0:
                costs_s[op.layer_call] += time_s
        return costs_s

    def predict(self, cut: StageCut, sharding: Sharding) -> StepTime:
        """Return the step of a model that is cut in stages."""
        return scale_to_pipeline(
            cut.time,
            update_s=self._predict_update_s(cut),
            transfer_s=cut.transfer_s,
            micro_batches=cut.micro_batches,
            sharding=sharding,
            traffic=self._build_traffic(cut),
            links=self.links,
        )

    def _predict_update_s(self, cut: StageCut) -> float:
        """Return the time of the update on the slowest stage [s]."""
        both = self.known.get_stage(cut.micro_batch, cut.slowest, updates=True)
        updating = self.predictor.step_time(both, self.accelerator)
        if isinstance(updating, NoPrediction):
            return 0.0
        return max(0.0, updating.time_s.mid - cut.time.time_s.mid)

    def _build_traffic(self, cut: StageCut) -> PipelineTraffic:
        """Return the data that the stages send in a step."""
        calls = select_executed_workload(cut.micro_batch, self.accelerator).layer_calls
        held = (self.known.get_stage(cut.micro_batch, one, updates=False) for one in cut.stages)
        crossing = () if calls is None else calls.crossing_bytes
        return PipelineTraffic(
            boundary_bytes=tuple(crossing[one.first] for one in cut.stages[1:]),
            shared_bytes=0 if calls is None else compute_shared_bytes(calls, cut.stages),
            gradient_bytes=max(one.memory.gradient_bytes for one in held),
            replicas=self.links.replicas,
        )


def _build_fullest(whole: Workload, cut: StageCut, accelerator: Accelerator) -> Workload:
    """Return the work of the devices, with the memory of the one that needs most."""
    built = (build_pipeline_workload(whole, cut.micro_batch, one) for one in cut.stages)
    return max(built, key=lambda one: _compute_needed_bytes(one, accelerator))


def _compute_needed_bytes(each: Workload, accelerator: Accelerator) -> int:
    """Return the memory of a device without the framework's [bytes]."""
    executed = select_executed_workload(each, accelerator)
    return executed.memory.compute_fixed_bytes(compiled=executed.compiled) + compute_batch_bytes(executed)

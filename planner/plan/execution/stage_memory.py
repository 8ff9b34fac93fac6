"""Work and memory of the stages of a pipeline: contiguous layers of a model, on micro-batches."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from ...frozen import Frozen
from ...predict.multi_device.pipeline_schedule import count_in_flight
from .identity_cache import IdentityCache
from .sharded_memory import scale_op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...workload.layer_calls import LayerCalls
    from ...workload.model import Memory, Workload
    from ...workload.ops import Op

ACTIVATIONS = (
    "activation_bytes",
    "compiled_activation_bytes",
    "eager_activation_bytes",
    "recomputed_activation_bytes",
    "tpu_activation_bytes",
)


class Stage(Frozen):
    """A stage of a pipeline.

    Args:
        number: Its place in the order of the forward pass, from 0 [-].
        first, end: First call of a layer that it runs, and the first that it does not [-].
        in_flight: Micro-batches whose activations it keeps at a time [-].
    """

    number: int
    first: int
    end: int
    in_flight: int

    def has_any(self, calls: tuple[int, ...]) -> bool:
        """Return whether any of some calls is among its own."""
        return any(self.first <= call < self.end for call in calls)

    @staticmethod
    def list_between(bounds: tuple[int, ...], *, micro_batches: int) -> tuple[Stage, ...]:
        """Return the stages between bounds, each with its micro-batches in flight."""
        stages = len(bounds) - 1
        return tuple(
            Stage(
                number=number,
                first=first,
                end=end,
                in_flight=count_in_flight(number, stages=stages, micro_batches=micro_batches),
            )
            for number, (first, end) in enumerate(pairwise(bounds))
        )


class StageWorkloads:
    """Workloads of stages, the same object for the same stage of the same workload."""

    def __init__(self) -> None:
        """Start without any."""
        self._known: IdentityCache[Workload] = IdentityCache()

    def get_stage(self, micro_batch: Workload, stage: Stage, *, updates: bool) -> Workload:
        """Return the workload of a stage, the same object for the same stage."""
        build = partial(build_stage_workload, micro_batch, stage, updates=updates)
        return self._known.get(micro_batch, (stage, updates), build)

    def get_mean_device(self, micro_batch: Workload, *, stages: int) -> Workload:
        """Return the work of a whole model with the memory of one of the devices that share it equally."""
        return self._known.get(micro_batch, stages, partial(_divide_memory, micro_batch, stages))


def compute_shared_bytes(calls: LayerCalls, stages: Sequence[Stage]) -> int:
    """Return the size of the trained weights that more than one stage holds [bytes]."""
    return sum(
        one.size_bytes for one in calls.shared if sum(stage.has_any(one.calls) for stage in stages) > 1
    )


def build_stage_workload(micro_batch: Workload, stage: Stage, *, updates: bool) -> Workload:
    """Return the work of a stage on one micro-batch, with the memory of its device.

    Args:
        micro_batch: The whole model at the size of a micro-batch.
        stage: Stage of it.
        updates: Whether it updates its variables, too.
    """
    return _map_tables(
        micro_batch,
        lambda ops, memory, calls: (
            _select_ops(ops, stage, updated=_compute_update_share(memory, calls, stage) if updates else 0.0),
            _compute_stage_memory(memory, calls, stage),
        ),
    )


def build_pipeline_workload(whole: Workload, micro_batch: Workload, stage: Stage) -> Workload:
    """Return the work of a step on all devices of a pipeline, with the memory of the device of one stage.

    Args:
        whole: The model at the batch size of a replica.
        micro_batch: The model at the size of a micro-batch.
        stage: Stage whose memory is wanted.
    """
    held, fused = build_stage_workload(micro_batch, stage, updates=False), whole.fused_attention
    batch_bytes = whole.memory.input_bytes
    if fused is not None and held.fused_attention is not None:
        fused = replace(fused, memory=replace(held.fused_attention.memory, input_bytes=batch_bytes))
    return replace(whole, memory=replace(held.memory, input_bytes=batch_bytes), fused_attention=fused)


def _map_tables(
    workload: Workload,
    change: Callable[[tuple[Op, ...], Memory, LayerCalls], tuple[tuple[Op, ...], Memory]],
) -> Workload:
    """Return a workload with other operations and memory, those of fused attention too."""
    fused = workload.fused_attention
    if fused is not None and fused.layer_calls is not None:
        ops, memory = change(fused.ops, fused.memory, fused.layer_calls)
        fused = replace(fused, ops=ops, memory=memory)
    if workload.layer_calls is None:
        return workload
    ops, memory = change(workload.ops, workload.memory, workload.layer_calls)
    return replace(workload, ops=ops, memory=memory, fused_attention=fused)


def _divide_memory(workload: Workload, stages: int) -> Workload:
    def divide(memory: Memory) -> Memory:
        sizes = {one.name: getattr(memory, one.name) for one in fields(memory) if one.name != "input_bytes"}
        return replace(memory, **{name: size // stages for name, size in sizes.items() if size is not None})

    return _map_tables(workload, lambda ops, memory, _: (ops, divide(memory)))


def _compute_parameter_bytes(calls: LayerCalls, stage: Stage) -> int:
    """Return the trained parameters of a stage, with copies of those that an earlier one holds as well [bytes]."""
    own = sum(calls.parameter_bytes[stage.first : stage.end])
    copied = (one for one in calls.shared if stage.has_any(one.calls) and not stage.has_any(one.calls[:1]))
    return own + sum(one.size_bytes for one in copied)


def _compute_update_share(memory: Memory, calls: LayerCalls, stage: Stage) -> float:
    """Return the share of a stage in the trained parameters; those that two stages hold count in both [-]."""
    whole = memory.parameter_bytes
    return min(1.0, _compute_parameter_bytes(calls, stage) / whole) if whole else 0.0


def _select_ops(ops: tuple[Op, ...], stage: Stage, *, updated: float) -> tuple[Op, ...]:
    """Return the operations of a stage, with a share of those that update variables."""
    own = _drop_empty_kernels([op for op in ops if stage.first <= op.layer_call < stage.end])
    if updated:
        own += [scale_op(op, updated) for op in ops if op.phase == "update"]
    return tuple(own)


def _drop_empty_kernels(ops: Sequence[Op]) -> list[Op]:
    """Return operations without their kernels that move nothing: another stage has what these read and write."""
    layer = {op.layer_group for op in ops if op.layer_bytes_read or op.layer_bytes_written}
    fused = {op.fused_group for op in ops if op.fused_bytes_read or op.fused_bytes_written}
    return [
        op
        if op.layer_group in layer and op.fused_group in fused
        else replace(
            op,
            layer_group=op.layer_group if op.layer_group in layer else -1,
            fused_group=op.fused_group if op.fused_group in fused else -1,
            row_group=op.row_group if op.row_group in fused else -1,
        )
        for op in ops
    ]


def _compute_stage_memory(memory: Memory, calls: LayerCalls, stage: Stage) -> Memory:
    """Return the memory of the device of a stage.

    It holds weights, gradients (all of them, since micro-batches add up) and optimizer state of its layers alone,
    and the activations of its micro-batches in flight: what is kept for the backward pass of each of them, and the
    rest for the one that it works on. What is kept is known as XLA keeps it on a GPU; for the other ways to run a
    step it is scaled by their peaks. A stage has never more of a micro-batch in memory than the whole model.

    Args:
        memory: Of the whole model at the size of a micro-batch.
        calls: Its calls of layers.
        stage: The stage.
    """
    parameters = _compute_parameter_bytes(calls, stage)
    share = _compute_update_share(memory, calls, stage)
    kept = sum(one.size_bytes for one in calls.kept if stage.has_any(one.calls))
    working = kept + max(calls.transient_bytes[stage.first : stage.end])
    reference = memory.compiled_activation_bytes or memory.activation_bytes
    activations = {}
    for name in ACTIVATIONS:
        whole = getattr(memory, name)
        if whole is not None:
            scale = whole / reference if reference else 1.0
            one = min(whole, round(scale * kept))
            activations[name] = (stage.in_flight - 1) * one + min(whole, round(scale * working))
    return replace(
        memory,
        parameter_bytes=parameters,
        gradient_bytes=parameters if memory.gradient_bytes else 0,
        waiting_gradient_bytes=None,
        optimizer_bytes=round(share * memory.optimizer_bytes),
        state_bytes=memory.state_bytes
        - sum(calls.state_bytes)
        + sum(calls.state_bytes[stage.first : stage.end]),
        input_bytes=memory.input_bytes if stage.number == 0 else 0,
        **activations,
    )

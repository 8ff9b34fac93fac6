"""Passes of a training step that add up the gradients of smaller batches before an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ..records import Frozen
from .model import DividedStep, FusedAttention, Workload
from .ops import Op, OpKind

Step = TypeVar("Step", Workload, DividedStep, FusedAttention)


def build_accumulation_pass(workload: Workload, passes: int, *, has_sums: bool = False) -> Workload:
    """Return one of the passes between two updates: its gradients are added to sums, and the update is shared.

    `gradient_accumulation_steps` of a Keras optimizer keeps one sum for each trained variable beside its other
    variables, adds the gradients of every pass to it, and updates once in so many passes
    (keras/src/optimizers/base_optimizer.py, Keras 3.15). All passes together take `passes` times as long.

    Args:
        workload: The step at the batch size of a pass; with an update, or with its share of one.
        passes: Passes for each update of this step [-].
        has_sums: Whether the memory of the optimizer contains the sums.
    """
    if passes == 1:
        return workload
    accumulates = workload.gradient_accumulation_steps > 1
    sums = _Sums(passes=passes, adds=not accumulates, held=not (accumulates or has_sums))
    whole = sums.accumulate(workload, workload.memory.gradient_bytes)
    divided = None if workload.divided is None else sums.accumulate_divided(workload.divided)
    steps = passes * workload.gradient_accumulation_steps
    return replace(whole, divided=divided, gradient_accumulation_steps=steps)


class _Sums(Frozen):
    """Sums of gradients over passes.

    Args:
        passes: Passes for each update [-].
        adds: Whether the operations that add the gradients are to be counted.
        held: Whether the memory of the sums is to be counted.
    """

    passes: int
    adds: bool
    held: bool

    def add_to(self, ops: Sequence[Op], gradient_bytes: int) -> tuple[Op, ...]:
        """Return the operations of a pass; devices that share the update share the sums too."""
        shared = divide_updates(ops, self.passes)
        if not self.adds:
            return shared
        layer = next((op.layer for op in ops if op.phase == "update" and op.layer), "")
        added = build_gradient_op("add", ops, gradient_bytes=gradient_bytes, read=2, written=1)
        return (*shared, replace(added, phase="update", layer=layer))

    def accumulate(self, step: Step, gradient_bytes: int) -> Step:
        """Return a pass with its operations and memory, and those with fused attention."""
        held_bytes = step.memory.gradient_bytes if self.held else 0
        memory = replace(step.memory, optimizer_bytes=step.memory.optimizer_bytes + held_bytes)
        done = replace(step, ops=self.add_to(step.ops, gradient_bytes), memory=memory)
        if isinstance(done, FusedAttention) or done.fused_attention is None:
            return done
        return replace(done, fused_attention=self.accumulate(done.fused_attention, gradient_bytes))

    def accumulate_divided(self, divided: DividedStep) -> DividedStep:
        """Return a pass of a device that holds parts of the variables, and of their sums."""
        each = divided.layout.each
        held = replace(each, optimizer=each.optimizer + (each.parameters if self.held else 0))
        layout = replace(divided.layout, each=held)
        return replace(self.accumulate(divided, each.parameters), layout=layout, memory=divided.memory)


def divide_updates(ops: Sequence[Op], passes: int) -> tuple[Op, ...]:
    """Return the operations of one of the passes that share an update."""
    return tuple(replace(op, count=op.count / passes) if op.phase == "update" else op for op in ops)


def build_gradient_op(
    name: str, ops: Sequence[Op], *, gradient_bytes: float, read: int, written: int, count: float = 1.0
) -> Op:
    """Return one operation over all gradients, which is a separate kernel with and without XLA.

    Args:
        name: What its kernels are called.
        ops: The step to which it is added.
        gradient_bytes: All gradients [bytes].
        read, written: Arrays of each gradient's size [-].
        count: Executions in a pass [-].
    """
    read_bytes, written_bytes = float(read * gradient_bytes), float(written * gradient_bytes)
    return Op(
        kind=OpKind.ELEMENTWISE,
        name=name,
        phase="backward",
        layer="",
        dtype="float32",
        count=count,
        bytes_read=read_bytes,
        layer_bytes_read=read_bytes,
        fused_bytes_read=read_bytes,
        bytes_written=written_bytes,
        layer_bytes_written=written_bytes,
        fused_bytes_written=written_bytes,
        layer_group=max(op.layer_group for op in ops) + 1,
        fused_group=max(op.fused_group for op in ops) + 1,
    )

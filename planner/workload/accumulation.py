"""Passes of a training step that add up the gradients of smaller batches before an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .model import FusedAttention, Step, Workload
from .ops import Op, OpKind, build_unfused_op


def build_accumulation_pass(workload: Workload, passes: int, *, has_sums: bool = False) -> Workload:
    """Return one of the `passes` [-] between updates: its gradients are added to sums, and the update is shared.

    A Keras optimizer keeps one sum for each trained variable (keras/src/optimizers/base_optimizer.py, Keras 3.15).
    `workload` is the step of a pass, with an update or its share of one; `has_sums`: its memory has the sums.
    """
    if passes == 1:
        return workload
    accumulates = workload.gradient_accumulation_steps > 1
    held = not (accumulates or has_sums)  # whether the memory of the sums is to be counted

    def accumulate(step: Step, gradient_bytes: int) -> Step:
        held_bytes = step.memory.gradient_bytes if held else 0
        memory = replace(step.memory, optimizer_bytes=step.memory.optimizer_bytes + held_bytes)
        ops: tuple[Op, ...] = divide_updates(step.ops, passes)
        if not accumulates:  # devices that share the update share the sums too
            layer = next((op.layer for op in ops if op.phase == "update" and op.layer), "")
            added = build_gradient_op("add", ops, gradient_bytes=gradient_bytes, read=2, written=1)
            ops = (*ops, replace(added, phase="update", layer=layer))
        done = replace(step, ops=ops, memory=memory)
        if isinstance(done, FusedAttention) or done.fused_attention is None:
            return done
        return replace(done, fused_attention=accumulate(done.fused_attention, gradient_bytes))

    divided = workload.divided
    if divided is not None:
        each = divided.layout.each
        own = replace(each, optimizer=each.optimizer + (each.parameters if held else 0))
        pass_of_one = accumulate(divided, each.parameters)
        divided = replace(pass_of_one, layout=replace(divided.layout, each=own), memory=divided.memory)
    steps = passes * workload.gradient_accumulation_steps
    whole = accumulate(workload, workload.memory.gradient_bytes)
    return replace(whole, divided=divided, gradient_accumulation_steps=steps)


def divide_updates(ops: Sequence[Op], passes: int) -> tuple[Op, ...]:
    """Return the operations of one of the passes that share an update."""
    return tuple(replace(op, count=op.count / passes) if op.phase == "update" else op for op in ops)


def build_gradient_op(
    name: str, ops: Sequence[Op], *, gradient_bytes: float, read: int, written: int, count: float = 1.0
) -> Op:
    """Return one operation over all gradients, to be added to a step, as a separate kernel with and without XLA.

    `read` and `written` count arrays of each gradient's size, `count` the executions in a pass [-].
    """
    op = build_unfused_op(
        kind=OpKind.ELEMENTWISE,
        name=name,
        phase="backward",
        dtype="float32",
        count=count,
        bytes_read=float(read * gradient_bytes),
        bytes_written=float(written * gradient_bytes),
        number=max(op.layer_group for op in ops) + 1,
    )
    return replace(op, fused_group=max(op.fused_group for op in ops) + 1)

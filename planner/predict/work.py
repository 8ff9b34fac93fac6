"""Which ops a measured pass ran: not always a whole training step, and some of it more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..workload.model import Workload
from ..workload.ops import Op, OpKind
from .corpus import Measurement

__all__ = ["COPIES", "ops_as_run", "updated_on_each_core"]

# Cores of a chip that are devices of their own, each with a share of the batch and all of the weights; the two
# cores of a v4 or v5p chip work as one ("megacore": docs.cloud.google.com/tpu/docs/v4).
COPIES = {"TPU-v2": 2, "TPU-v3": 2}


def ops_as_run(m: Measurement, workload: Workload) -> tuple[Op, ...]:
    """Return the ops that a measured pass really ran.

    No optimizer where only forward and backward were timed; its share of the optimizer step where passes are
    accumulated, and the sum of their gradients; the forward pass twice where activations are recomputed.
    """
    ops = updated_on_each_core(workload.ops, m.accelerator)
    if m.work == "forward_backward":
        ops = tuple(op for op in ops if op.phase != "update")
    if m.accumulation is not None and m.accumulation > 1:
        passes = m.accumulation
        ops = tuple(replace(op, count=op.count / passes) if op.phase == "update" else op for op in ops)
        ops = (*ops, _sum_of_gradients(ops, gradient_bytes=workload.memory.gradient_bytes))
    if m.recompute:
        ops = tuple(replace(op, count=op.count * 2) if op.phase == "forward" else op for op in ops)
    return ops


def _sum_of_gradients(ops: Sequence[Op], *, gradient_bytes: float) -> Op:
    """Return the row that adds the gradients of a pass to those of the passes before: read both, write the sum."""
    read, written = 2.0 * gradient_bytes, float(gradient_bytes)
    return Op(
        kind=OpKind.ELEMENTWISE, name="add", phase="backward", layer="", dtype="float32",
        bytes_read=read, layer_bytes_read=read, fused_bytes_read=read,
        bytes_written=written, layer_bytes_written=written, fused_bytes_written=written,
        layer_group=max(op.layer_group for op in ops) + 1, fused_group=max(op.fused_group for op in ops) + 1,
    )  # fmt: skip


def updated_on_each_core(ops: tuple[Op, ...], accelerator: str) -> tuple[Op, ...]:
    """Return the ops of a step on a chip, the optimizer's once for each core that holds the weights."""
    copies = COPIES.get(accelerator, 1)
    if copies == 1:
        return ops
    return tuple(replace(op, count=op.count * copies) if op.phase == "update" else op for op in ops)

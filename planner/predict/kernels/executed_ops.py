"""Operations of a measured pass, which may omit or repeat parts of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...workload.accumulation import build_gradient_op, divide_updates
from ...workload.model import Workload
from ...workload.ops import Op
from ..measurements import Measurement

__all__ = [
    "CORES_PER_CHIP",
    "GradientPass",
    "list_gradient_passes",
    "repeat_updates",
    "select_executed_ops",
]

# Cores of a chip that are devices of their own, each with a share of the batch and all of the weights; the two
# cores of a v4 or v5p chip work as one ("megacore": docs.cloud.google.com/tpu/docs/v4).
CORES_PER_CHIP = {"TPU-v2": 2, "TPU-v3": 2}


class GradientPass(NamedTuple):
    """An operation on all gradients.

    Args:
        name: What the kernels are called.
        read, written: Arrays of each gradient's size [-].
        times: In one pass [-].
    """

    name: str
    read: int
    written: int
    times: float


def list_gradient_passes(m: Measurement) -> tuple[GradientPass, ...]:
    """Return the operations on gradients that are not part of Keras's update.

    Where passes are accumulated, each adds its gradients to a sum. TensorFlow takes the loss scale of float16 out
    of the gradients of each pass (PyTorch out of their sum, as Keras does), and scripts for TensorFlow 1 look
    whether they are finite. To clip, a script reads all for their norm, and rewrites all of them: once a step, or,
    NVIDIA's for BERT on TensorFlow 1, in each pass (NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT/
    optimization.py and TensorFlow2/LanguageModeling/BERT/model_training_utils.py). Nothing of it is fused: what
    XLA is given between updates of variables by reference are single operations.
    """
    passes = m.accumulation or 1
    scaled = m.precision == "mixed_float16" and m.framework in ("tensorflow1", "tensorflow2")
    found = []
    if passes > 1:
        found.append(GradientPass("add", 2, 1, 1.0))
        if scaled:
            found.append(GradientPass("unscale", 1, 1, 1.0))
        if scaled and m.framework == "tensorflow1":
            found.append(GradientPass("is_finite", 1, 0, 1.0))
    if m.clipping:
        often = 1.0 if m.clipping == "pass" else 1.0 / passes
        found += [GradientPass("norm", 1, 0, often), GradientPass("clip", 1, 1, often)]
    return tuple(found)


def select_executed_ops(m: Measurement, workload: Workload) -> tuple[Op, ...]:
    """Return the operations of a measured pass.

    No optimizer where only forward and backward were timed; its share of the optimizer step where passes are
    accumulated; other operations on gradients; as much of the forward pass again as is recomputed; attention as
    one kernel where it was.
    """
    ops = (workload.with_fused_attention if m.attention == "flash" else workload).ops
    if m.work == "forward_backward":
        ops = tuple(op for op in ops if op.phase != "update")
    if m.accumulation is not None and m.accumulation > 1:
        ops = divide_updates(ops, m.accumulation)
    for sweep in list_gradient_passes(m):
        ops = (
            *ops,
            build_gradient_op(
                sweep.name,
                ops,
                gradient_bytes=workload.memory.gradient_bytes,
                read=sweep.read,
                written=sweep.written,
                count=sweep.times,
            ),
        )
    if m.recompute:
        times = 1.0 + m.recompute
        ops = tuple(replace(op, count=op.count * times) if op.phase == "forward" else op for op in ops)
    return ops


def repeat_updates(ops: Sequence[Op], *, cores: int) -> tuple[Op, ...]:
    """Return the operations of a step on a chip whose cores each update all weights."""
    if cores == 1:
        return tuple(ops)
    return tuple(replace(op, count=op.count * cores) if op.phase == "update" else op for op in ops)

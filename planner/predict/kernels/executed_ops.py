"""Operations of a measured pass, which may omit or repeat parts of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...workload.accumulation import build_gradient_op, divide_updates
from ...workload.model import Workload
from ...workload.ops import Op
from ..measurements import Measurement

# Cores of a chip that are devices of their own, each with a share of the batch and all of the weights; the two
# cores of a v4 or v5p chip work as one ("megacore": docs.cloud.google.com/tpu/docs/v4).
CORES_PER_CHIP = {"TPU-v2": 2, "TPU-v3": 2}


class ArraySweep(NamedTuple):
    """An operation on all gradients, on all weights or on the batch, which a script runs beside the step.

    Args:
        name: Name of the kernels.
        read, written: Arrays of the size of all gradients, or of the batch [-].
        times: In one pass [-].
        each: Whether there is a kernel for each variable; otherwise one sweeps over all.
        inputs: Whether it is over the batch; otherwise over gradients or weights.
    """

    name: str
    read: int
    written: int
    times: float
    each: bool = False
    inputs: bool = False

    @property
    def label(self) -> str:
        """Part of a run's key for this sweep; empty for one kernel that adds up gradients."""
        if self.name == "add" and not self.each:
            return ""
        return f" {self.name} x{self.times:g}" + " each" * self.each


def list_array_sweeps(m: Measurement) -> tuple[ArraySweep, ...]:
    """Return the operations on gradients, weights and the batch that are not part of Keras's step.

    Where passes are accumulated, each adds its gradients to a sum. TensorFlow takes the loss scale of float16 out
    of the gradients of each pass (PyTorch out of their sum, as Keras does), and scripts for TensorFlow 1 look
    whether they are finite. To clip, a script reads all for their norm, and rewrites all of them: once a step, or,
    NVIDIA's for BERT on TensorFlow 1, in each pass (NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT/
    optimization.py and TensorFlow2/LanguageModeling/BERT/model_training_utils.py). Nothing of it is fused: what
    XLA is given between updates of variables by reference are single operations.

    A moving average of the weights reads it and them, and writes it (`update_average` in TensorFlow2/
    Classification/ConvNets/utils/optimizer_factory.py of the same repository). In PyTorch it is three sweeps, a
    product in place, a sum in place and a copy back, the last with a kernel for each variable (`ModelEma.update`
    in PyTorch/Detection/Efficientdet/utils/model_ema.py).

    Mixup multiplies the batch, gathers it in another order, multiplies that and adds both, each a kernel (`mixup`
    in PyTorch/Classification/ConvNets/image_classification/mixup.py).
    """
    passes = m.accumulation or 1
    scaled = m.precision == "mixed_float16" and m.framework in ("tensorflow1", "tensorflow2")
    found = []
    if passes > 1:
        found.append(ArraySweep("add", 2, 1, 1.0, each="add" in m.loops))
        if scaled:
            found.append(ArraySweep("unscale", 1, 1, 1.0))
        if scaled and m.framework == "tensorflow1":
            found.append(ArraySweep("is_finite", 1, 0, 1.0))
    if m.clipping:
        often, each = 1.0 if m.clipping == "pass" else 1.0 / passes, "clip" in m.loops
        found += [ArraySweep("norm", 1, 0, often, each=each), ArraySweep("clip", 1, 1, often, each=each)]
    if m.averaging and m.framework == "pytorch":
        found += [
            ArraySweep("average_product", 1, 1, 1.0 / passes),
            ArraySweep("average_sum", 2, 1, 1.0 / passes),
            ArraySweep("average_copy", 1, 1, 1.0 / passes, each="average" in m.loops),
        ]
    elif m.averaging:
        found.append(ArraySweep("average", 2, 1, 1.0 / passes, each="average" in m.loops))
    if m.mixing:
        products = ArraySweep("mixup_product", 1, 1, 2.0, inputs=True)
        found += [products, ArraySweep("mixup_order", 1, 1, 1.0, inputs=True)]
        found.append(ArraySweep("mixup_sum", 2, 1, 1.0, inputs=True))
    return tuple(found)


def count_variables(ops: Sequence[Op]) -> int:
    """Return the number of variables that a step updates; equal ones that share a row each count [-].

    Without an update there is one, so that sweeps over gradients remain.
    """
    counts: dict[int, float] = {}
    for op in ops:
        if op.phase == "update" and op.layer_group >= 0:
            counts[op.layer_group] = max(counts.get(op.layer_group, 0.0), op.count)
    return max(1, round(sum(counts.values())))


def select_executed_ops(m: Measurement, workload: Workload) -> tuple[Op, ...]:
    """Return the operations of a measured pass.

    No optimizer where only forward and backward were timed; its share of the optimizer step where passes are
    accumulated; sweeps over gradients, weights and the batch; as much of the forward pass again as is recomputed;
    attention as one kernel where it was.
    """
    ops = (workload.with_fused_attention if m.has_fused_attention else workload).ops
    if m.work == "forward_backward":
        ops = tuple(op for op in ops if op.phase != "update")
    if m.accumulation is not None and m.accumulation > 1:
        ops = divide_updates(ops, m.accumulation)
    variables = count_variables(workload.ops)
    for sweep in list_array_sweeps(m):
        parts = variables if sweep.each else 1
        swept_bytes = workload.memory.input_bytes if sweep.inputs else workload.memory.gradient_bytes
        added = build_gradient_op(
            sweep.name,
            ops,
            gradient_bytes=swept_bytes / parts,
            read=sweep.read,
            written=sweep.written,
            count=sweep.times * parts,
        )
        ops = (*ops, replace(added, phase="forward") if sweep.inputs else added)
    if m.recompute:
        times = 1.0 + m.recompute
        ops = tuple(replace(op, count=op.count * times) if op.phase == "forward" else op for op in ops)
    return ops


def repeat_updates(ops: Sequence[Op], *, cores: int) -> tuple[Op, ...]:
    """Return the operations of a step on a chip whose cores each update all weights."""
    if cores == 1:
        return tuple(ops)
    return tuple(replace(op, count=op.count * cores) if op.phase == "update" else op for op in ops)

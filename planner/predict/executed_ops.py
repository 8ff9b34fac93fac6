"""Kernel table of a step from the operations of its pass: the recipe of predictions, breakdowns and fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from ..offers.rows import Accelerator
from ..workload.accumulation import build_gradient_op, divide_updates
from ..workload.model import Workload
from ..workload.ops import PLACES, Op, change_op
from .keras_defaults import choose_attention, find_execution_precision
from .kernel_table import FastGroups, FusedKernel, Kernel, KernelTable, build_kernel_table, is_direct
from .launches import Launching, UnfusedPart
from .library_kernels import (
    AMPERE,
    CPU_RATES,
    VOLTA,
    find_attention_kernel,
    find_converted_dtypes,
    find_cudnn_layers,
    find_fast_groups,
    find_keras_cudnn_layers,
    find_keras_fast_groups,
    find_unfused_parts,
    find_xla_converted_dtypes,
    has_persistent_norms,
    has_row_kernels,
    is_by_inductor,
    is_by_xla,
    is_nvidia_since,
)
from .measurements import Measurement
from .run_config import TENSORFLOW


class ArraySweep(NamedTuple):
    """An operation on all gradients, on all weights or on the batch, which a script runs beside the step."""

    name: str  # name of the kernels
    # read, written: arrays of the size of all gradients, or of the batch [-]
    read: int
    written: int
    times: float  # in one pass [-]
    each: bool = False  # whether there is a kernel for each variable; otherwise one sweeps over all
    inputs: bool = False  # whether it is over the batch; otherwise over gradients or weights


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


def count_updated_arrays(workload: Workload) -> float:
    """Return the number of arrays that the update of a variable writes: its value and the optimizer's [-]."""
    if workload.mode != "train" or not workload.trainable_parameters:
        return 0.0
    return 1.0 + round(workload.memory.optimizer_bytes / (4.0 * workload.trainable_parameters))


_WORK = [name for name in PLACES if name in ("flops", "batch") or "bytes" in name]


def repeat_updates(ops: Sequence[Op], *, cores: int) -> tuple[Op, ...]:
    """Return the operations of a step on a chip whose cores each update all weights, launched on all at once."""
    if cores == 1:
        return tuple(ops)
    return tuple(
        change_op(op, {name: getattr(op, name) * cores for name in _WORK}) if op.phase == "update" else op
        for op in ops
    )


# Calls that Keras composes of primitives on a backend where nothing is compiled. Softmax is two reductions and a
# kernel that reads the operand a third time (tensorflow/core/kernels/softmax_op_gpu.cu.cc; XLA's program for an
# operation that JAX runs by itself). Published steps on TensorFlow are counted with two readings: the third is
# 0.5 % of the bytes of BERT.
COMPOSED_CALLS: dict[str, frozenset[UnfusedPart]] = {
    "jax": frozenset({"softmax"}),
    "tensorflow": frozenset({"calls", "softmax"}),
    "torch": frozenset({"torch_calls"}),
}


class Execution(Launching):
    """Execution of a step: everything besides its operations that determines the kernel table."""

    # operand types of convolutions whose layout is converted for tensor units
    converted: frozenset[str] = frozenset()
    cores: int = 1  # cores of a chip that each update the weights [-]
    fused_attention: bool = False  # whether attention is one kernel a pass
    attention_kernel: FusedKernel = "warp"  # which kernel that is
    fast_groups: FastGroups = "all"  # which grouped convolutions have kernels on tensor units
    cpu_backend: str = ""  # backend that runs on a CPU; empty on other chips

    @property
    def of_kernels(self) -> Execution:
        """Execution without what changes only the table of given kernels."""
        return Execution(cores=self.cores, **{one.name: getattr(self, one.name) for one in fields(Launching)})

    def select_ops(self, workload: Workload) -> tuple[Op, ...]:
        """Return the operations of a workload in this execution."""
        return workload.with_fused_attention.ops if self.fused_attention else workload.ops

    def build_kernels(self, ops: Sequence[Op]) -> tuple[Kernel, ...]:
        """Return the kernels of a step, equal kernels merged into one row with a count."""
        return super().build_kernels(repeat_updates(ops, cores=self.cores))

    def group_ops(self, ops: Sequence[Op]) -> list[tuple[Kernel, list[Op]]]:
        """Return each kernel of a step with its operations; primitives of unfused parts are not separated."""
        return super().group_ops(repeat_updates(ops, cores=self.cores))

    def build_table(self, kernels: Iterable[Kernel]) -> KernelTable:
        """Return the kernels as arrays; direct grouped convolutions are timed and listed as depthwise ones."""
        timed = (
            kernel._replace(category="depthwise") if is_direct(kernel, self.fast_groups) else kernel
            for kernel in kernels
        )
        return build_kernel_table(
            timed,
            converted=self.converted,
            attention_kernel=self.attention_kernel,
            rates=CPU_RATES.get(self.cpu_backend, {}),
            compiled=self.compiled,
        )


def find_keras_execution(workload: Workload, accelerator: Accelerator) -> Execution:
    """Return the execution of a workload by the installed version of Keras."""
    compiled = workload.compiled
    # XLA compiles each primitive where nothing else is compiled.
    by_xla = workload.backend == "jax" and is_nvidia_since(accelerator, 0.0)
    by_torch = workload.backend == "torch"
    by_tensorflow = not compiled and workload.backend == "tensorflow"
    layers = find_keras_cudnn_layers(accelerator, keras=workload.versions["keras"], compiled=compiled)
    # TensorFlow lays arrays out as XLA does; Keras on PyTorch has channels last.
    precision = find_execution_precision(workload, accelerator)
    converted = find_xla_converted_dtypes(accelerator, precision=precision)
    return Execution(
        compiled=compiled,
        cudnn_layers=layers & workload.looped_layers,
        unfused=frozenset() if compiled else COMPOSED_CALLS.get(workload.backend, frozenset()),
        converted=frozenset() if by_torch else converted,
        cores=accelerator.cores_per_chip,
        fused_attention=choose_attention(workload, accelerator).fused,
        attention_kernel="warp" if by_torch else "warpgroup",
        row_kernels=compiled and is_nvidia_since(accelerator, VOLTA if by_torch else AMPERE),
        inductor=compiled and by_torch and accelerator.kind != "tpu",
        xla_samples=workload.batch_size if by_xla else 0,
        filter_arrays=count_updated_arrays(workload) if by_xla and compiled else 0.0,
        fast_groups=find_keras_fast_groups(accelerator),
        torch_samples=workload.batch_size if by_torch and not compiled else 0,
        cpu_backend=workload.backend if accelerator.kind == "cpu" else "",
        tensorflow_samples=workload.batch_size if by_tensorflow and is_nvidia_since(accelerator, 0.0) else 0,
    )


def find_measured_execution(m: Measurement, accelerator: Accelerator | None = None) -> Execution:
    """Return the execution of a published measurement; no conversions and kernels of rows for no accelerator."""
    return Execution(
        compiled=m.compiled,
        cudnn_layers=find_cudnn_layers(m),
        unfused=find_unfused_parts(m),
        converted=find_converted_dtypes(m, accelerator) if accelerator else frozenset(),
        cores=m.device.cores_per_chip if m.device else 1,
        attention_kernel=find_attention_kernel(m),
        persistent_norms=has_persistent_norms(m),
        row_kernels=accelerator is not None and has_row_kernels(m, accelerator),
        inductor=is_by_inductor(m),
        xla_samples=m.batch_size if m.framework == "jax" and is_by_xla(m) else 0,
        torch_samples=m.batch_size if (m.framework, m.stack, m.compiled) == ("pytorch", "keras", False) else 0,
        fast_groups=find_fast_groups(m, accelerator) if accelerator else "all",
        tensorflow_samples=m.batch_size if m.framework in TENSORFLOW and not m.compiled else 0,
    )

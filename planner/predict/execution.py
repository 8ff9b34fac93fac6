"""Kernel table of a step on an accelerator: the one recipe for predictions, breakdowns, fits and traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..offers.rows import Accelerator
from ..workload.model import Workload
from ..workload.ops import Op
from .keras_defaults import choose_attention, find_execution_precision
from .kernels.executed_ops import CORES_PER_CHIP, repeat_updates
from .kernels.grouped import FastGroups, is_direct
from .kernels.launches import UnfusedPart, build_kernels, group_ops_by_kernel
from .kernels.recurrent import use_cudnn_rnn
from .kernels.table import FusedKernel, Kernel, KernelTable, build_kernel_table
from .library_kernels import (
    AMPERE,
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
    is_nvidia_since,
)
from .measurements import Measurement

# Calls that Keras composes of primitives on a backend where nothing is compiled. Softmax is two reductions and a
# kernel that reads the operand a third time (tensorflow/core/kernels/softmax_op_gpu.cu.cc; XLA's program for an
# operation that JAX runs by itself). Published steps on TensorFlow are counted with two readings: the third is
# 0.5 % of the bytes of BERT.
COMPOSED_CALLS: dict[str, frozenset[UnfusedPart]] = {
    "jax": frozenset({"softmax"}),
    "tensorflow": frozenset({"calls", "softmax"}),
    "torch": frozenset({"torch_calls"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Execution of a step: everything besides its operations that determines the kernel table.

    Args:
        compiled: True: elementwise chains are fused by XLA; False: one kernel per layer call and phase.
        cudnn_layers: Recurrent layers (`lstm`, `gru`) executed by cuDNN; others run the traced loop.
        unfused: Parts of the step of which every primitive is a kernel.
        converted: Operand types of convolutions whose layout is converted for tensor units.
        cores: Cores of a chip that each update the weights [-].
        fused_attention: Whether attention is one kernel a pass.
        attention_kernel: Which kernel that is.
        persistent_norms: Whether kernels of batch normalization read each operand once.
        row_kernels: Whether XLA keeps rows on the chip that it reduces and then works on.
        fast_groups: Which grouped convolutions have kernels on tensor units.
    """

    compiled: bool
    cudnn_layers: frozenset[str] = frozenset()
    unfused: frozenset[UnfusedPart] = frozenset()
    converted: frozenset[str] = frozenset()
    cores: int = 1
    fused_attention: bool = False
    attention_kernel: FusedKernel = "warp"
    persistent_norms: bool = False
    row_kernels: bool = False
    fast_groups: FastGroups = "all"

    @property
    def of_kernels(self) -> Execution:
        """Execution without what changes only the table of given kernels."""
        return Execution(cores=self.cores, **self._list_kernel_options())

    def _list_kernel_options(self) -> dict[str, Any]:
        names = ("compiled", "cudnn_layers", "unfused", "persistent_norms", "row_kernels")
        return {name: getattr(self, name) for name in names}

    def select_ops(self, workload: Workload) -> tuple[Op, ...]:
        """Return the operations of a workload in this execution."""
        return workload.with_fused_attention.ops if self.fused_attention else workload.ops

    def build_kernels(self, ops: Sequence[Op]) -> tuple[Kernel, ...]:
        """Return the kernels of a step, equal kernels merged into one row with a count."""
        return build_kernels(repeat_updates(ops, cores=self.cores), **self._list_kernel_options())

    def group_ops(self, ops: Sequence[Op]) -> list[tuple[Kernel, list[Op]]]:
        """Return each kernel of a step with its operations; primitives of unfused parts are not separated."""
        dispatched, streamed = use_cudnn_rnn(repeat_updates(ops, cores=self.cores), layers=self.cudnn_layers)
        return group_ops_by_kernel(
            [*dispatched, *streamed], compiled=self.compiled, row_kernels=self.row_kernels
        )

    def build_table(self, kernels: Iterable[Kernel]) -> KernelTable:
        """Return the kernels as arrays; direct grouped convolutions are timed and listed as depthwise ones."""
        timed = (
            kernel._replace(category="depthwise") if is_direct(kernel, self.fast_groups) else kernel
            for kernel in kernels
        )
        return build_kernel_table(timed, converted=self.converted, attention_kernel=self.attention_kernel)


def find_keras_execution(workload: Workload, accelerator: Accelerator) -> Execution:
    """Return the execution of a workload by the installed version of Keras."""
    compiled = workload.compiled
    layers = find_keras_cudnn_layers(accelerator, keras=workload.versions["keras"], compiled=compiled)
    # TensorFlow lays arrays out as XLA does; Keras on PyTorch has channels last.
    precision = find_execution_precision(workload, accelerator)
    converted = find_xla_converted_dtypes(accelerator, precision=precision)
    return Execution(
        compiled=compiled,
        cudnn_layers=layers & workload.looped_layers,
        unfused=frozenset() if compiled else COMPOSED_CALLS.get(workload.backend, frozenset()),
        converted=frozenset() if workload.backend == "torch" else converted,
        cores=CORES_PER_CHIP.get(accelerator.name, 1),
        fused_attention=choose_attention(workload, accelerator).fused,
        attention_kernel="warpgroup",
        row_kernels=compiled and workload.backend != "torch" and is_nvidia_since(accelerator, AMPERE),
        fast_groups=find_keras_fast_groups(accelerator),
    )


def find_measured_execution(m: Measurement, accelerator: Accelerator | None = None) -> Execution:
    """Return the execution of a published measurement.

    Args:
        m: Published measurement.
        accelerator: Row of the catalog; None: layout conversions and kernels of rows are left out, as in the store
            of kernels, which no steps of XLA since Keras 3 on chips that have them were published for.
    """
    return Execution(
        compiled=m.compiled,
        cudnn_layers=find_cudnn_layers(m),
        unfused=find_unfused_parts(m),
        converted=find_converted_dtypes(m, accelerator) if accelerator else frozenset(),
        cores=CORES_PER_CHIP.get(m.accelerator, 1),
        attention_kernel=find_attention_kernel(m),
        persistent_norms=has_persistent_norms(m),
        row_kernels=accelerator is not None and has_row_kernels(m, accelerator),
        fast_groups=find_fast_groups(m, accelerator) if accelerator else "all",
    )

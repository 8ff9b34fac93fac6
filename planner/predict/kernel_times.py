"""Device time of a table of kernels, also of several steps at once. Pure formulas over arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..records import Frozen
from .coefficients import AcceleratorLimits, GenerationCoefficients, SharedCoefficients, StackCoefficients
from .contractions import compute_contraction_s
from .kernel_table import CATEGORIES, CONTRACTIONS, DEPTHWISE, KernelTable
from .roofline import (
    clock_share,
    compute_bandwidth_bytes_per_s,
    find_sharpness,
    memory_traffic_s,
    select_by_category,
    select_rows,
    soft_max,
)

_DOT = CATEGORIES.index("dot")
_CONVERTED = 3  # arrays of a convolution: two operands and the result


# Gap between kernels that a library launches from the host, relative to the mean of all stacks: about that of
# PyTorch's own modules (1.6 to 2.4 in fits of published steps). cuDNN's LSTM on JAX had gaps of 10 us on an H200,
# the kernels of the program around it, which XLA captures in CUDA graphs, of 1 to 2 us
# (profiles/measured/nvidia-h200-jax.json).
LIBRARY_LAUNCH = 1.6


class _Inputs(Frozen):
    """Kernels with the limits of the chip and the coefficients that apply to them."""

    table: KernelTable
    chip: AcceleratorLimits
    generation: GenerationCoefficients
    stack: StackCoefficients
    shared: SharedCoefficients

    def select(self, rows: Any) -> _Inputs:
        """Return the inputs of some kernels, see `select_rows`."""
        return _Inputs(**{name: select_rows(values, rows) for name, values in vars(self).items()})

    def compute_traffic_s(self, bytes_moved: Any, *, share: Any, xp: Any) -> Any:
        """Return the time of memory traffic at a share of the bandwidth [s]."""
        return memory_traffic_s(
            bytes_moved=bytes_moved,
            l2_bytes=self.chip.l2_bytes,
            l2_reuse=self.shared.l2_reuse,
            attainable_bytes_per_s=compute_bandwidth_bytes_per_s(
                self.chip, self.stack, self.shared, share=share, xp=xp
            ),
        )

    def compute_total_s(self, compute_s: Any, memory_s: Any, *, xp: Any) -> Any:
        """Return softmax(arithmetic, memory) + launch gap [s]."""
        sharpness = find_sharpness(self.table, self.shared, xp)
        return soft_max(compute_s, memory_s, sharpness=sharpness, xp=xp) + self.generation.launch_s


def compute_launch_s(
    table: KernelTable, generation: GenerationCoefficients, stack: StackCoefficients, *, xp: Any
) -> Any:
    """Return the gap before each kernel [s]."""
    return generation.launch_s * xp.where(table.by_library, LIBRARY_LAUNCH, stack.launch)


def compute_kernel_parts_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    xp: Any,
) -> tuple[Any, Any, Any]:
    """Return total, arithmetic and memory time of all launches of each row [s].

    The time of a launch is softmax(arithmetic, memory) + launch gap. For convolutions with a layout that tensor
    units do not support, the faster of conversion and scalar units is taken, and the faster of both units for
    float32 in TF32: see `_take_faster_unit`.
    """
    import numpy as np

    generation = replace(generation, launch_s=compute_launch_s(table, generation, stack, xp=xp))
    inputs = _Inputs(table=table, chip=chip, generation=generation, stack=stack, shared=shared)
    either = table.converted | _find_either_unit(table, chip)
    columns = np.flatnonzero(np.atleast_2d(either).any(axis=0))
    products_s, on_scalar_s = _compute_on_units_s(inputs, columns, xp=xp)
    elementwise_s = (table.flops / (chip.vector_flop_per_s * clock_share(chip, shared)))[..., table.contractions :]
    compute_s = xp.concatenate([products_s, elementwise_s], axis=-1)
    streams = ("stream",) * len(CONTRACTIONS) + ("stream", "pool", "irregular")
    share = select_by_category(generation, streams, table.category, xp)
    memory_s = inputs.compute_traffic_s(table.bytes_moved, share=share, xp=xp)
    total_s = inputs.compute_total_s(compute_s, memory_s, xp=xp)
    if not len(columns):
        return total_s * table.count, compute_s * table.count, memory_s * table.count
    on_both_s = (on_scalar_s, *(times_s[..., columns] for times_s in (compute_s, memory_s, total_s)))
    parts_s = _take_faster_unit(inputs.select(columns), *on_both_s, xp=xp)
    place = columns.searchsorted(range(total_s.shape[-1])).clip(max=len(columns) - 1)
    compute_s, total_s = (
        xp.where(either, chosen_s[..., place], times_s)
        for chosen_s, times_s in zip(parts_s, (compute_s, total_s), strict=True)
    )
    return total_s * table.count, compute_s * table.count, memory_s * table.count


def _find_either_unit(table: KernelTable, chip: AcceleratorLimits) -> Any:
    """Return the mask of float32 products on tensor units (TF32) that scalar units may compute as fast.

    These are convolutions with Winograd's algorithm, and all products where the peak of tensor units is less than
    twice that of scalar units.
    """
    close = table.winograd | (chip.peak_flop_per_s < 2.0 * chip.vector_flop_per_s)
    return chip.tensor & chip.winograd & (table.category <= _DOT) & (table.category != DEPTHWISE) & close


def _compute_on_units_s(inputs: _Inputs, columns: Any, *, xp: Any) -> tuple[Any, Any]:
    """Return the arithmetic of all contractions, and of those at `columns` on scalar units [s]."""
    import numpy as np

    contractions = inputs.table.contractions
    rows = np.concatenate([np.arange(contractions), columns]) if len(columns) else slice(contractions)
    own = inputs.select(rows)
    scalar = np.arange(contractions + len(columns)) >= contractions
    peak = xp.where(scalar, own.chip.vector_flop_per_s, own.chip.peak_flop_per_s)
    chip = replace(own.chip, tensor=own.chip.tensor & ~scalar, peak_flop_per_s=peak)
    times_s = compute_contraction_s(own.table, chip, own.generation, own.stack, own.shared, xp=xp)
    return times_s[..., :contractions], times_s[..., contractions:]


def _take_faster_unit(
    inputs: _Inputs, on_scalar_s: Any, compute_s: Any, memory_s: Any, total_s: Any, *, xp: Any
) -> tuple[Any, Any]:
    """Return arithmetic and total time per launch of contractions by the faster of two units [s].

    Libraries time both units (github.com/tensorflow/tensorflow/pull/56744: neither is always faster on an A100).
    Tensor units need channels last: cuDNN converts both operands and the result of a convolution with channels
    first, each read and written once more (NVIDIA, "Convolutional Layers User's Guide", on tensor layouts in
    memory). Scalar units support both layouts, with Winograd's algorithm too.
    """
    # One array is read and written once, in one launch.
    array_bytes = 2.0 * inputs.table.bytes_moved / _CONVERTED
    copied_s = inputs.compute_traffic_s(array_bytes, share=inputs.generation.stream, xp=xp)
    conversion_s = copied_s + inputs.generation.launch_s
    by_tensor_s = total_s + xp.where(inputs.table.converted, _CONVERTED * conversion_s, 0.0)
    by_scalar_s = inputs.compute_total_s(on_scalar_s, memory_s, xp=xp)
    arithmetic_s = xp.where(by_scalar_s < by_tensor_s, on_scalar_s, compute_s)
    return arithmetic_s, xp.minimum(by_tensor_s, by_scalar_s)


# Largest reduction of multiplications by an algorithm for convolutions in use: F(4x4, 3x3) of Winograd's needs 36
# for 144 (Lavin and Gray, 2016, CVPR, section 4.3).
WINOGRAD_REDUCTION = 4.0


def compute_bound_s(table: KernelTable, chip: AcceleratorLimits) -> Any:
    """Return a physical lower bound of each step: products at the datasheet's peak, nothing else [s].

    Sum over the contractions of FLOPs / peak, with a quarter of the FLOPs where Winograd's algorithms apply on
    scalar units. Traffic is left out: caches may serve any part of it.
    """
    rows = slice(table.contractions)
    table, chip = select_rows(table, rows), select_rows(chip, rows)
    reduced = table.winograd & chip.winograd & ~chip.tensor
    peak = chip.peak_flop_per_s * (1.0 + reduced * (WINOGRAD_REDUCTION - 1.0))
    return (table.flops * table.count / peak).sum(axis=-1)

"""Device time of a table of kernels, also of several steps at once. Pure formulas over arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from .coefficients import AcceleratorLimits, GenerationCoefficients, SharedCoefficients, StackCoefficients
from .contractions import compute_contraction_s
from .kernel_table import CATEGORIES, CONTRACTIONS, KernelTable
from .roofline import (
    clock_share,
    compute_bandwidth_bytes_per_s,
    find_positions,
    find_sharpness,
    memory_traffic_s,
    pick_rows,
    select_by_category,
    soft_max,
)

_DEPTHWISE = CATEGORIES.index("depthwise")
_DOT = CATEGORIES.index("dot")
_CONVERTED = 3  # arrays of a convolution: two operands and the result


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Kernels with the limits of the chip and the coefficients that apply to them."""

    table: KernelTable
    chip: AcceleratorLimits
    generation: GenerationCoefficients
    stack: StackCoefficients
    shared: SharedCoefficients

    def pick(self, chosen: tuple[Any, ...]) -> _Inputs:
        """Return the inputs of chosen kernels, see `pick_rows`."""
        return _Inputs(*(pick_rows(getattr(self, field.name), chosen) for field in fields(self)))

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
    float32 in TF32: see `_fastest_unit_s`.
    """
    generation = replace(generation, launch_s=generation.launch_s * stack.launch)
    inputs = _Inputs(table, chip, generation, stack, shared)
    clock = clock_share(chip, shared)
    elementwise_s = (table.flops / (chip.vector_flop_per_s * clock))[..., table.contractions :]
    products_s = compute_contraction_s(table, chip, generation, stack, shared, xp=xp)
    compute_s = xp.concatenate([products_s, elementwise_s], axis=-1)
    streams = ("stream",) * len(CONTRACTIONS) + ("stream", "pool", "irregular")
    share = select_by_category(generation, streams, table.category, xp)
    memory_s = inputs.compute_traffic_s(table.bytes_moved, share=share, xp=xp)
    busy_s = soft_max(compute_s, memory_s, sharpness=find_sharpness(table, shared, xp), xp=xp)
    total_s = busy_s + generation.launch_s
    rows = table.converted | _find_either_unit(table, chip)
    if rows.any():
        compute_s, total_s = _fastest_unit_s(inputs, rows, compute_s, memory_s, total_s, xp=xp)
    return total_s * table.count, compute_s * table.count, memory_s * table.count


def _find_either_unit(table: KernelTable, chip: AcceleratorLimits) -> Any:
    """Return the mask of float32 products on tensor units (TF32) that scalar units may compute as fast.

    These are convolutions with Winograd's algorithm, and all products where the peak of tensor units is less than
    twice that of scalar units.
    """
    close = table.winograd | (chip.peak_flop_per_s < 2.0 * chip.vector_flop_per_s)
    return chip.tensor & chip.winograd & (table.category <= _DOT) & (table.category != _DEPTHWISE) & close


def _fastest_unit_s(
    inputs: _Inputs, rows: Any, compute_s: Any, memory_s: Any, total_s: Any, *, xp: Any
) -> tuple[Any, Any]:
    """Return arithmetic and total time per launch, some contractions by the faster of two units [s].

    Libraries time both units (github.com/tensorflow/tensorflow/pull/56744: neither is always faster on an A100).
    Tensor units need channels last: cuDNN converts both operands and the result of a convolution with channels
    first, each read and written once more (NVIDIA, "Convolutional Layers User's Guide", on tensor layouts in
    memory). Scalar units support both layouts, with Winograd's algorithm too.
    """
    chosen = rows.nonzero()
    own = inputs.pick(chosen)
    table = replace(own.table, contractions=len(chosen[0]))
    # One array is read and written once, in one launch.
    array_bytes = 2.0 * own.table.bytes_moved / _CONVERTED
    copied_s = own.compute_traffic_s(array_bytes, share=own.generation.stream, xp=xp)
    conversion_s = copied_s + own.generation.launch_s
    by_tensor_s = total_s[chosen] + xp.where(own.table.converted, _CONVERTED * conversion_s, 0.0)
    ones = xp.ones(len(chosen[0]))
    scalar = replace(own.chip, tensor=ones < 0, peak_flop_per_s=own.chip.vector_flop_per_s * ones)
    arithmetic_s = compute_contraction_s(table, scalar, own.generation, own.stack, own.shared, xp=xp)
    sharpness = find_sharpness(table, own.shared, xp)
    busy_s = soft_max(arithmetic_s, memory_s[chosen], sharpness=sharpness, xp=xp)
    by_scalar_s = busy_s + own.generation.launch_s
    compute_rows_s = xp.where(by_scalar_s < by_tensor_s, arithmetic_s, compute_s[chosen])
    position = find_positions(rows)
    return (
        xp.where(rows, compute_rows_s[position], compute_s),
        xp.where(rows, xp.minimum(by_tensor_s, by_scalar_s)[position], total_s),
    )


# Largest reduction of multiplications by an algorithm for convolutions in use: F(4x4, 3x3) of Winograd's needs 36
# for 144 (Lavin and Gray, 2016, CVPR, section 4.3).
WINOGRAD_REDUCTION = 4.0


def compute_bound_s(table: KernelTable, chip: AcceleratorLimits) -> Any:
    """Return a physical lower bound of each step: products at the datasheet's peak, nothing else [s].

    Sum over the contractions of FLOPs / peak, with a quarter of the FLOPs where Winograd's algorithms apply on
    scalar units. Traffic is left out: caches may serve any part of it.
    """
    reduced = table.winograd & chip.winograd & ~chip.tensor
    peak = chip.peak_flop_per_s * (1.0 + reduced * (WINOGRAD_REDUCTION - 1.0))
    return (table.flops * table.count / peak)[..., : table.contractions].sum(axis=-1)

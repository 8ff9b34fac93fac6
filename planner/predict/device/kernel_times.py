"""Device and host time of a table of kernels. Pure formulas over arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ..coefficients import (
    AcceleratorLimits,
    GenerationCoefficients,
    HostCoefficients,
    SharedCoefficients,
    StackCoefficients,
)
from ..framework_versions import SCALAR_EPOCH, SCALAR_PLATEAU, SOFTWARE_EPOCH, SOFTWARE_PLATEAU
from ..kernels.table import CATEGORIES, CONTRACTIONS, KernelTable, find_products
from ..priors import ERA_BEGAN
from .fused_attention import compute_attention_s, find_attention_kernels
from .roofline import best_tiling_s, memory_traffic_s, soft_max, soft_min, transforms_s

__all__ = [
    "MOST_FITTED_PRESSURE",
    "clock_share",
    "compute_bound_s",
    "compute_contraction_s",
    "compute_kernel_parts_s",
    "compute_step_s",
    "count_dispatches",
    "with_software_year",
]  # fmt: skip

MOST_FITTED_PRESSURE = 1.6  # memory needed over memory usable, of the published steps that were fitted: 1.57

# Elements of the k loop loaded per step: CUTLASS's defaults for float32 on scalar units, and for tensor units up
# to Turing; 64 since Ampere (NVIDIA/cutlass@044405ce10e2
# include/cutlass/gemm/device/default_gemm_configuration.h, `ThreadblockShape`).
K_STEP, K_STEP_TENSOR = 8.0, 32.0
# cuDNN's float32 convolutions do not split the k loop, except for weight gradients; cuBLAS may split it.
_SCALAR_SHARES = ("conv", "conv", "conv_wgrad", "depthwise", "dot", "dot", "dot")  # of `CONTRACTIONS`
_DEPTHWISE = CATEGORIES.index("depthwise")
_DOT = CATEGORIES.index("dot")
_FIRST_SPLITTING = CATEGORIES.index("conv_wgrad")
# Sharpness of the transition from the boost clock to the power-limited clock, and of the limit of a share of the
# peak to 1.
_CLOCK_SHARPNESS = 6.0
_PEAK_SHARPNESS = 6.0
_CONVERTED = 3  # arrays of a convolution: two operands and the result
_NEVER_REACHED = 60.0  # of an exponent: keeps the growth of a step that does not fit finite


def _by_category(generation: GenerationCoefficients, names: tuple[str, ...], category: Any, xp: Any) -> Any:
    chosen = getattr(generation, names[0])
    for code, name in enumerate(names[1:], start=1):
        chosen = xp.where(category == code, getattr(generation, name), chosen)
    return chosen


def _of_rows(coefficients: Any, rows: Any) -> Any:
    """Return the coefficients of some rows; scalars are kept, arrays of [kernels] are indexed."""
    values = {field.name: getattr(coefficients, field.name) for field in fields(coefficients)}
    cut = {name: value[rows] for name, value in values.items() if getattr(value, "ndim", 0) == 1}
    return replace(coefficients, **cut) if cut else coefficients


def clock_share(chip: AcceleratorLimits, shared: SharedCoefficients) -> Any:
    """Return the clock under load relative to the boost clock of datasheet peaks [-].

    softmin(1, headroom * base / boost): the base clock is sustained at the highest load within the power limit;
    training draws less power and runs above the base clock, up to the boost clock. Only boards with a low power
    limit (70 W) do not reach it.
    """
    return soft_min(1.0, shared.clock_headroom * chip.clock_ratio, sharpness=_CLOCK_SHARPNESS)


def with_software_year(
    software_year: Any, generation: GenerationCoefficients, shared: SharedCoefficients, *, year: Any, xp: Any
) -> GenerationCoefficients:
    """Return a generation's coefficients with the shares of the peaks that libraries of a year reach.

    Shares of tensor units are multiplied by g^(y - `SOFTWARE_EPOCH`), g = `tensor_per_year`; y is the year, not
    before `SOFTWARE_EPOCH` and not after `SOFTWARE_PLATEAU`. Shares of scalar units in products and convolutions,
    on chips since Volta, are multiplied by g^(y - `SCALAR_PLATEAU`), g = `scalar_per_year`; y is not before
    `SCALAR_EPOCH` and not after `SCALAR_PLATEAU`.

    Args:
        software_year: Release date of the framework [years].
        generation: Fitted coefficients of the generation.
        shared: Fitted shared coefficients.
        year: When the accelerator came out [years].
        xp: Array module.
    """
    tensor_years = xp.clip(software_year, SOFTWARE_EPOCH, SOFTWARE_PLATEAU) - SOFTWARE_EPOCH
    scalar_years = xp.clip(software_year, SCALAR_EPOCH, SCALAR_PLATEAU) - SCALAR_PLATEAU
    tensor = shared.tensor_per_year**tensor_years
    scalar = shared.scalar_per_year ** xp.where(xp.asarray(year) >= ERA_BEGAN, scalar_years, 0.0)
    gains = dict.fromkeys(("conv_tensor", "dot_tensor"), tensor) | dict.fromkeys(
        ("conv", "conv_wgrad", "dot"), scalar
    )
    return replace(generation, **{name: getattr(generation, name) * gain for name, gain in gains.items()})


def _sharpness(table: KernelTable, shared: SharedCoefficients, xp: Any) -> Any:
    """Return the sharpness of the overlap of two times, lower for matrix products than for convolutions [-]."""
    return xp.where(find_products(table.category), shared.dot_sharpness, shared.sharpness)


def _compute_scalar_share(
    table: KernelTable, generation: GenerationCoefficients, stack: StackCoefficients, *, xp: Any
) -> Any:
    """Return the share of the scalar units' peak that each contraction attains [-].

    The gradient of a depthwise filter sums over all pixels (k) for the few numbers of a filter (m, channels of a
    group n times its area). That m is a multiple of n tells it from a forward pass over few pixels.
    """
    share = _by_category(generation, _SCALAR_SHARES, table.category, xp)
    of_filter = (table.k > table.m) & (table.m % xp.maximum(table.n, 1) == 0)
    filter_gradient = (table.category == _DEPTHWISE) & of_filter
    share = xp.where(filter_gradient, generation.depthwise_wgrad, share) * stack.contraction
    return soft_min(1.0, share, sharpness=_PEAK_SHARPNESS)


def compute_contraction_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    xp: Any,
) -> Any:
    """Return the time of one launch of each contraction without memory traffic [s], array of [table.contractions].

    The sum of the arithmetic by the best tiling and of Winograd's or Fourier transforms, or the arithmetic of a
    depthwise convolution. Fused attention without tensor units, and on chips other than NVIDIA's, is timed as a
    matrix product of its size.
    """
    rows = slice(table.contractions)
    table, chip, generation, stack, shared = (
        _of_rows(c, rows) for c in (table, chip, generation, stack, shared)
    )
    is_dot = find_products(table.category)
    scalar = _compute_scalar_share(table, generation, stack, xp=xp)
    scalar = scalar * xp.where(is_dot, chip.issue_share, 1.0)
    # How well convolutions use tensor units depends on the framework's layouts and on how it chooses algorithms;
    # for products all call the same library.
    matrix = xp.where(is_dot, generation.dot_tensor, generation.conv_tensor * stack.tensor)
    density = xp.where(is_dot, 0.0, shared.tensor_density)
    matrix = soft_min(1.0, matrix / chip.tensor_density**density, sharpness=_PEAK_SHARPNESS)
    gain = xp.where(table.winograd & chip.winograd, generation.winograd_gain, 1.0)
    clock = clock_share(chip, shared)
    share = xp.where(chip.tensor, matrix, scalar * gain)
    # A measured share of the peak includes the clock under load.
    limit = xp.where(chip.tensor & (chip.matmul_share > 0), chip.matmul_share, clock)
    attainable_flop_per_s = chip.peak_flop_per_s * share * limit
    tiled_s = best_tiling_s(
        m=table.m,
        n=table.n,
        k=table.k,
        batch=table.batch,
        cores=chip.cores,
        core_flop_per_s=attainable_flop_per_s / chip.cores,
        tile_exponent=shared.tile_exponent,
        k_step=xp.where(chip.tensor, K_STEP_TENSOR, K_STEP),
        quantization=shared.quantization,
        split_cost=shared.split_cost,
        may_split=(table.category >= _FIRST_SPLITTING) | chip.tensor,
        step_latency_s=generation.step_latency_s / clock,
        sharpness=_sharpness(table, shared, xp),
        xp=xp,
    )
    # Depthwise convolutions run on scalar units for every operand type, without padding. Two 16-bit operands are
    # packed into one instruction if channels are last.
    paired = xp.where(chip.pairs & ~table.channels_first, 2.0, 1.0)
    sliding_s = table.flops / (chip.vector_flop_per_s * scalar * paired * clock)
    around_s = transforms_s(
        table,
        chip,
        generation,
        clock=clock,
        xp=xp,
        bandwidth_bytes_per_s=_bandwidth_bytes_per_s(chip, stack, shared, share=generation.stream, xp=xp),
    )
    products_s = xp.where(table.category == _DEPTHWISE, sliding_s, tiled_s + around_s)
    return _replace_attention_s(products_s, table, chip, clock=clock, xp=xp)


def _replace_attention_s(
    products_s: Any, table: KernelTable, chip: AcceleratorLimits, *, clock: Any, xp: Any
) -> Any:
    """Return the times of contractions [s] with those of fused attention in the place of products of its size."""
    rows = find_attention_kernels(table)
    if not rows.any():
        return products_s
    chosen = rows.nonzero()[0]
    attention_s = compute_attention_s(
        _of_rows(table, chosen),
        _of_rows(chip, chosen),
        clock=clock[chosen] if xp.ndim(clock) else clock,
        xp=xp,
    )
    modelled = rows & chip.tensor & (chip.sm_clocks_per_s > 0)
    return xp.where(modelled, attention_s[_find_positions(rows)], products_s)


def _find_positions(rows: Any) -> Any:
    """Return the position of each row among the chosen ones, array of [rows]; of no meaning for others [-].

    Args:
        rows: Mask of the chosen ones.
    """
    return (rows.cumsum() - 1).clip(0)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Kernels with the limits of the chip and the coefficients that apply to them."""

    table: KernelTable
    chip: AcceleratorLimits
    generation: GenerationCoefficients
    stack: StackCoefficients
    shared: SharedCoefficients

    def select(self, rows: Any) -> _Inputs:
        """Return the inputs of some rows."""
        return _Inputs(*(_of_rows(getattr(self, field.name), rows) for field in fields(self)))


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
    compute_s, memory_s = _busy_s(table, chip, generation, stack, shared, xp=xp)
    total_s = (
        soft_max(compute_s, memory_s, sharpness=_sharpness(table, shared, xp), xp=xp) + generation.launch_s
    )
    rows = table.converted | _find_either_unit(table, chip)
    if rows.any():
        inputs = _Inputs(table, chip, generation, stack, shared)
        compute_s, total_s = _fastest_unit_s(inputs, rows, compute_s, memory_s, total_s, xp=xp)
    return total_s * table.count, compute_s * table.count, memory_s * table.count


def _busy_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    xp: Any,
) -> tuple[Any, Any]:
    """Return arithmetic and memory time of one launch of each row [s]."""
    clock = clock_share(chip, shared)
    elementwise_s = (table.flops / (chip.vector_flop_per_s * clock))[table.contractions :]
    products_s = compute_contraction_s(table, chip, generation, stack, shared, xp=xp)
    compute_s = xp.concatenate([products_s, elementwise_s])
    streams = ("stream",) * len(CONTRACTIONS) + ("stream", "pool", "irregular")
    share = _by_category(generation, streams, table.category, xp)
    return compute_s, _traffic_s(table.bytes_moved, chip, stack, shared, share=share, xp=xp)


def _traffic_s(
    bytes_moved: Any,
    chip: AcceleratorLimits,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    share: Any,
    xp: Any,
) -> Any:
    """Return the time of memory traffic at a share of the bandwidth [s]."""
    return memory_traffic_s(
        bytes_moved=bytes_moved,
        l2_bytes=chip.l2_bytes,
        l2_reuse=shared.l2_reuse,
        attainable_bytes_per_s=_bandwidth_bytes_per_s(chip, stack, shared, share=share, xp=xp),
    )


def _bandwidth_bytes_per_s(
    chip: AcceleratorLimits, stack: StackCoefficients, shared: SharedCoefficients, *, share: Any, xp: Any
) -> Any:
    """Return the attainable bandwidth: datasheet * ECC * share * stack / density^exponent [bytes/s]."""
    ecc = xp.where(chip.inline_ecc, shared.inline_ecc, 1.0)
    return chip.memory_bytes_per_s * ecc * share * stack.stream / chip.memory_density**shared.memory_density


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

    Args:
        inputs: All kernels.
        rows: Mask of the contractions that either unit may compute, array of [kernels].
        compute_s, memory_s, total_s: Per launch on tensor units without conversions, array of [kernels] [s].
        xp: Array module.
    """
    chosen = rows.nonzero()[0]
    own = inputs.select(chosen)
    table = replace(own.table, contractions=len(chosen))
    conversions_s = xp.where(inputs.table.converted[chosen], _CONVERTED * _conversion_s(own, xp=xp), 0.0)
    by_tensor_s = total_s[chosen] + conversions_s
    ones = xp.ones(len(chosen))
    scalar = replace(own.chip, tensor=ones < 0, peak_flop_per_s=own.chip.vector_flop_per_s * ones)
    arithmetic_s = compute_contraction_s(table, scalar, own.generation, own.stack, own.shared, xp=xp)
    sharpness = _sharpness(table, own.shared, xp)
    busy_s = soft_max(arithmetic_s, memory_s[chosen], sharpness=sharpness, xp=xp)
    by_scalar_s = busy_s + own.generation.launch_s
    compute_rows_s = xp.where(by_scalar_s < by_tensor_s, arithmetic_s, compute_s[chosen])
    position = _find_positions(rows)
    return (
        xp.where(rows, compute_rows_s[position], compute_s),
        xp.where(rows, xp.minimum(by_tensor_s, by_scalar_s)[position], total_s),
    )


def _conversion_s(inputs: _Inputs, *, xp: Any) -> Any:
    """Return the time to convert the layout of one array of a convolution: one read, one write, one launch [s]."""
    array_bytes = 2.0 * inputs.table.bytes_moved / _CONVERTED
    own = inputs.generation
    copied_s = _traffic_s(array_bytes, inputs.chip, inputs.stack, inputs.shared, share=own.stream, xp=xp)
    return copied_s + own.launch_s


# Largest reduction of multiplications by an algorithm for convolutions in use: F(4x4, 3x3) of Winograd's needs 36
# for 144 (Lavin and Gray, 2016, CVPR, section 4.3).
WINOGRAD_REDUCTION = 4.0


def compute_bound_s(table: KernelTable, chip: AcceleratorLimits) -> float:
    """Return a physical lower bound of a step: products at the datasheet's peak, nothing else [s].

    Sum over the contractions of FLOPs / peak, with a quarter of the FLOPs where Winograd's algorithms apply on
    scalar units. Traffic is left out: caches may serve any part of it.
    """
    rows = slice(table.contractions)
    reduced = (table.winograd & chip.winograd & ~chip.tensor)[rows]
    flops = (table.flops * table.count)[rows]
    peak = chip.peak_flop_per_s[rows] * (1.0 + reduced * (WINOGRAD_REDUCTION - 1.0))
    return float((flops / peak).sum())


def count_dispatches(table: KernelTable, *, compiled: bool) -> float:
    """Return the host's dispatches per step: 1 for a compiled program, else one per kernel outside libraries."""
    return 1.0 if compiled else table.dispatched


def compute_step_s(
    *,
    device_s: Any,
    launches: Any,
    input_bytes: Any,
    pressure: Any,
    host: HostCoefficients,
    shared: SharedCoefficients,
    xp: Any,
    paging_s: Any = None,
) -> Any:
    """Return the wall time of a step: device work and host dispatch overlap, the rest is added [s].

    softmax(starved, launches dispatch) + fixed + input / feed, with excess e = max(pressure - 1, 0) and

        starved = min(device exp(slope e), device exp(slope e_1) + paging),   e_1 = `MOST_FITTED_PRESSURE` - 1

    The growth without workspace was fitted up to `MOST_FITTED_PRESSURE`; beyond it a step takes no longer than one
    that keeps the rest of its arrays in the host's memory.

    Args:
        device_s: Sum over the kernels [s].
        launches: Dispatches by the host [-].
        input_bytes: One batch, copied from the host [bytes].
        pressure: Memory needed over memory usable [-].
        host: Coefficients of the host: `fixed_s`, `dispatch_s`, `feed_bytes_per_s`.
        shared: Shared coefficients: `pressure_slope`, `host_sharpness`.
        xp: Array module.
        paging_s: What `compute_paging_s` returns; None: nothing is paged, as in the fit [s].
    """
    growth = shared.pressure_slope * xp.maximum(pressure - 1.0, 0.0)
    starved_s = device_s * xp.exp(xp.minimum(growth, _NEVER_REACHED))
    if paging_s is not None:
        most = xp.exp(shared.pressure_slope * (MOST_FITTED_PRESSURE - 1.0))
        starved_s = xp.minimum(starved_s, device_s * most + paging_s)
    dispatch_s = launches * host.dispatch_s
    overlapped_s = soft_max(starved_s, dispatch_s, sharpness=shared.host_sharpness, xp=xp)
    return overlapped_s + host.fixed_s + input_bytes / host.feed_bytes_per_s

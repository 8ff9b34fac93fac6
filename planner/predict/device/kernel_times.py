"""Time that the device and the host spend on a table of kernels. Pure formulas over arrays."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..coefficients import (
    AcceleratorLimits,
    GenerationCoefficients,
    HostCoefficients,
    SharedCoefficients,
    StackCoefficients,
)
from ..framework_versions import SOFTWARE_EPOCH
from ..kernels.table import CATEGORIES, CONTRACTIONS, KernelTable
from .roofline import best_tiling_s, memory_traffic_s, soft_max, soft_min, transforms_s

__all__ = [
    "clock_share",
    "compute_contraction_s",
    "compute_kernel_parts_s",
    "compute_step_s",
    "count_dispatches",
    "with_software_year",
]  # fmt: skip

# Elements of the k loop that a tile loads at a time: CUTLASS's defaults for kernels of float32 on scalar units,
# and for tensor units up to Turing; 64 since Ampere (NVIDIA/cutlass@044405ce10e2
# include/cutlass/gemm/device/default_gemm_configuration.h, `ThreadblockShape`).
K_STEP, K_STEP_TENSOR = 8.0, 32.0
# cuDNN's float32 convolutions run the whole k loop of an output tile on one core, but for the gradient of the
# weights; cuBLAS splits where it helps.
_DEPTHWISE = CATEGORIES.index("depthwise")
_DOT = CATEGORIES.index("dot")
_FIRST_SPLITTING = CATEGORIES.index("conv_wgrad")
# How sharply the clock turns from the boost clock to what power allows, and the share of tensor units to all of
# their peak: whatever libraries gain with the years, they get no further.
_CLOCK_SHARPNESS = 6.0
_PEAK_SHARPNESS = 6.0
_CONVERTED = 3  # arrays of a convolution: two operands and the result


def _by_category(generation: GenerationCoefficients, names: tuple[str, ...], category: Any, xp: Any) -> Any:
    chosen = getattr(generation, names[0])
    for code, name in enumerate(names[1:], start=1):
        chosen = xp.where(category == code, getattr(generation, name), chosen)
    return chosen


def _of_rows(coefficients: Any, rows: Any) -> Any:
    """Return coefficients for some rows, where they are arrays of [kernels]."""
    values = {field.name: getattr(coefficients, field.name) for field in fields(coefficients)}
    cut = {name: value[rows] for name, value in values.items() if getattr(value, "ndim", 0) == 1}
    return replace(coefficients, **cut) if cut else coefficients


def clock_share(chip: AcceleratorLimits, shared: SharedCoefficients) -> Any:
    """Return the clock under load over the boost clock, which datasheet peaks are of [-].

    A vendor's base clock is what the heaviest load leaves within the board's power. Training draws less and runs
    above it, though never above the boost clock: most boards boost all the time, one of 70 W cannot.
    """
    return soft_min(1.0, shared.clock_headroom * chip.clock_ratio, sharpness=_CLOCK_SHARPNESS)


def with_software_year(
    software_year: Any, stack: StackCoefficients, shared: SharedCoefficients, *, xp: Any
) -> StackCoefficients:
    """Return a framework with the libraries of a year: tensor units are used better every year since 2019.

    Args:
        software_year: When the framework was released, with a fraction; what came out before `SOFTWARE_EPOCH`
            is taken to be as then [years].
        stack: As fitted.
        shared: As fitted.
    """
    gain = shared.tensor_per_year ** xp.maximum(software_year - SOFTWARE_EPOCH, 0.0)
    return replace(stack, tensor=stack.tensor * gain)


def _sharpness(table: KernelTable, shared: SharedCoefficients, xp: Any) -> Any:
    """Return how sharply the larger of two times rules: products hide less than convolutions do [-]."""
    return xp.where(table.category == _DOT, shared.dot_sharpness, shared.sharpness)


def compute_contraction_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    xp: Any,
) -> Any:
    """Return the time of one launch of each contraction, its own traffic aside [s], array of [table.contractions].

    That is arithmetic, and transforms where an algorithm has them.
    """
    rows = slice(table.contractions)
    table, chip, generation, stack, shared = (
        _of_rows(c, rows) for c in (table, chip, generation, stack, shared)
    )
    is_dot = table.category == _DOT
    scalar = _by_category(generation, CONTRACTIONS, table.category, xp) * stack.contraction
    scalar = scalar * xp.where(is_dot, chip.issue_share, 1.0)
    matrix = xp.where(is_dot, generation.dot_tensor, generation.conv_tensor) * stack.tensor
    density = xp.where(is_dot, 0.0, shared.tensor_density)
    matrix = soft_min(1.0, matrix / chip.tensor_density**density, sharpness=_PEAK_SHARPNESS)
    gain = xp.where(table.winograd & chip.winograd, generation.winograd_gain, 1.0)
    clock = clock_share(chip, shared)
    share = xp.where(chip.tensor, matrix, scalar * gain)
    attainable_flop_per_s = chip.peak_flop_per_s * share * clock
    tiled_s = best_tiling_s(
        m=table.m, n=table.n, k=table.k, batch=table.batch, cores=chip.cores,
        core_flop_per_s=attainable_flop_per_s / chip.cores,
        tile_exponent=shared.tile_exponent, k_step=xp.where(chip.tensor, K_STEP_TENSOR, K_STEP),
        quantization=shared.quantization, split_cost=shared.split_cost,
        may_split=(table.category >= _FIRST_SPLITTING) | chip.tensor,
        step_latency_s=generation.step_latency_s / clock, sharpness=_sharpness(table, shared, xp), xp=xp,
    )  # fmt: skip
    # One filter a channel is no matrix product: such kernels slide over the image on scalar units, whatever the
    # operand type, and nothing is padded. 16-bit operands go in pairs where neighbouring channels are neighbours.
    paired = xp.where(chip.pairs & ~table.channels_first, 2.0, 1.0)
    sliding_s = table.flops / (chip.vector_flop_per_s * scalar * paired * clock)
    around_s = transforms_s(
        table, chip, generation, clock=clock, xp=xp,
        bandwidth_bytes_per_s=_bandwidth_bytes_per_s(chip, stack, shared, share=generation.stream, xp=xp),
    )  # fmt: skip
    return xp.where(table.category == _DEPTHWISE, sliding_s, tiled_s + around_s)


def compute_kernel_parts_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    xp: Any,
) -> tuple[Any, Any, Any]:
    """Return total time, arithmetic time and memory time of each row, all launches together [s].

    The total of a launch is the soft maximum of arithmetic and memory, plus the launch gap. Convolutions that have
    channels first where tensor units want them last go the faster of two ways: see `_layout_conversion_s`.
    """
    compute_s, memory_s = _busy_s(table, chip, generation, stack, shared, xp=xp)
    total_s = (
        soft_max(compute_s, memory_s, sharpness=_sharpness(table, shared, xp), xp=xp) + generation.launch_s
    )
    if table.converted.any():
        compute_s, total_s = _layout_conversion_s(
            table, chip, generation, stack, shared,
            compute_s=compute_s, memory_s=memory_s, total_s=total_s, xp=xp,
        )  # fmt: skip
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
    """Return how long memory takes for some bytes, of a share of its bandwidth [s]."""
    return memory_traffic_s(
        bytes_moved=bytes_moved, l2_bytes=chip.l2_bytes, l2_reuse=shared.l2_reuse,
        attainable_bytes_per_s=_bandwidth_bytes_per_s(chip, stack, shared, share=share, xp=xp),
    )  # fmt: skip


def _bandwidth_bytes_per_s(
    chip: AcceleratorLimits, stack: StackCoefficients, shared: SharedCoefficients, *, share: Any, xp: Any
) -> Any:
    """Return what memory gives a kind of kernel that reaches a share of its bandwidth [bytes/s]."""
    ecc = xp.where(chip.inline_ecc, shared.inline_ecc, 1.0)
    return chip.memory_bytes_per_s * ecc * share * stack.stream / chip.memory_density**shared.memory_density


def _layout_conversion_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    stack: StackCoefficients,
    shared: SharedCoefficients,
    *,
    compute_s: Any,
    memory_s: Any,
    total_s: Any,
    xp: Any,
) -> tuple[Any, Any]:
    """Return arithmetic and total time of a launch of each row, channels first going the faster way [s].

    Tensor units multiply with channels last: cuDNN converts both operands and the result, each read and written
    once more (NVIDIA, "Convolutional Layers User's Guide", on tensor layouts in memory). Scalar units take
    channels first as they come, by Winograd's algorithm too, and are the faster way for small products of large
    arrays; libraries time both and take the better one (github.com/tensorflow/tensorflow/pull/56744: neither wins
    everywhere on an A100).

    Args:
        compute_s, memory_s, total_s: Of one launch on tensor units, without conversions, array of [kernels] [s].
    """
    among = table.converted
    rows = among.nonzero()[0]
    converted, board, own, framework, common = (
        _of_rows(c, rows) for c in (table, chip, generation, stack, shared)
    )
    converted = replace(converted, contractions=len(rows))
    every = xp.ones(len(rows))
    scalar = replace(board, tensor=every < 0, peak_flop_per_s=board.vector_flop_per_s * every)
    array_bytes = 2.0 * converted.bytes_moved / _CONVERTED
    one_s = _traffic_s(array_bytes, board, framework, common, share=own.stream, xp=xp) + own.launch_s
    by_tensor_s = total_s[rows] + _CONVERTED * one_s
    sums_s = compute_contraction_s(converted, scalar, own, framework, common, xp=xp)
    sharpness = _sharpness(converted, common, xp)
    by_scalar_s = soft_max(sums_s, memory_s[rows], sharpness=sharpness, xp=xp) + own.launch_s
    place = (among.cumsum() - 1).clip(0)  # of a converted row among them
    faster_s = xp.minimum(by_tensor_s, by_scalar_s)
    arithmetic_s = xp.where(by_scalar_s < by_tensor_s, sums_s, compute_s[rows])
    return (
        xp.where(among, arithmetic_s[place], compute_s),
        xp.where(among, faster_s[place], total_s),
    )


def count_dispatches(table: KernelTable, *, compiled: bool) -> float:
    """Return how often the host has to act in a step: once for a compiled program, else for every kernel that
    no library launches by itself.
    """
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
) -> Any:
    """Return the step's wall time [s]: device work and host dispatch overlap, the rest adds.

    Args:
        device_s: Sum over the kernels [s].
        launches: Kernels per step that the host dispatches one by one [-].
        input_bytes: One batch as it comes from the host [bytes].
        pressure: Memory needed over memory usable [-].
    """
    starved_s = device_s * xp.exp(shared.pressure_slope * xp.maximum(pressure - 1.0, 0.0))
    dispatch_s = launches * host.dispatch_s
    overlapped_s = soft_max(starved_s, dispatch_s, sharpness=shared.host_sharpness, xp=xp)
    return overlapped_s + host.fixed_s + input_bytes / host.feed_bytes_per_s

"""Time of contractions: convolutions, matrix products and fused attention. Pure formulas over arrays."""

from __future__ import annotations

from typing import Any

from ..coefficients import (
    AcceleratorLimits,
    GenerationCoefficients,
    SharedCoefficients,
    StackCoefficients,
)
from ..kernels.table import CATEGORIES, KernelTable, find_products
from .fused_attention import compute_attention_s, find_attention_kernels
from .rates import (
    clock_share,
    compute_bandwidth_bytes_per_s,
    find_positions,
    find_sharpness,
    select_by_category,
    select_rows,
)
from .roofline import soft_min, transforms_s
from .tiling import Products, best_tiling_s

# Elements of the k loop loaded per step: CUTLASS's defaults for float32 on scalar units, and for tensor units up
# to Turing; 64 since Ampere (NVIDIA/cutlass@044405ce10e2
# include/cutlass/gemm/device/default_gemm_configuration.h, `ThreadblockShape`).
K_STEP, K_STEP_TENSOR = 8.0, 32.0
_SCALAR_SHARES = ("conv", "conv", "conv_wgrad", "depthwise", "dot", "dot", "dot")  # of `CONTRACTIONS`
_DEPTHWISE = CATEGORIES.index("depthwise")
# cuDNN's float32 convolutions do not split the k loop, except for weight gradients; cuBLAS may split it.
_FIRST_SPLITTING = CATEGORIES.index("conv_wgrad")
_PEAK_SHARPNESS = 6.0  # of the limit of a share of the peak to 1


def _compute_scalar_share(
    table: KernelTable, generation: GenerationCoefficients, stack: StackCoefficients, *, xp: Any
) -> Any:
    """Return the share of the scalar units' peak that each contraction attains [-].

    The gradient of a depthwise filter sums over all pixels (k) for the few numbers of a filter (m, channels of a
    group n times its area). That m is a multiple of n tells it from a forward pass over few pixels.
    """
    share = select_by_category(generation, _SCALAR_SHARES, table.category, xp)
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
        select_rows(c, rows) for c in (table, chip, generation, stack, shared)
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
    products = Products(
        m=table.m,
        n=table.n,
        k=table.k,
        batch=table.batch,
        cores=chip.cores,
        core_flop_per_s=attainable_flop_per_s / chip.cores,
        k_step=xp.where(chip.tensor, K_STEP_TENSOR, K_STEP),
        step_latency_s=generation.step_latency_s / clock,
        may_split=(table.category >= _FIRST_SPLITTING) | chip.tensor,
        sharpness=find_sharpness(table, shared, xp),
        quantization=shared.quantization,
        split_cost=shared.split_cost,
        tile_exponent=shared.tile_exponent,
    )
    tiled_s = best_tiling_s(products, xp=xp)
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
        bandwidth_bytes_per_s=compute_bandwidth_bytes_per_s(
            chip, stack, shared, share=generation.stream, xp=xp
        ),
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
        select_rows(table, chosen),
        select_rows(chip, chosen),
        clock=clock[chosen] if xp.ndim(clock) else clock,
        xp=xp,
    )
    modelled = rows & chip.tensor & (chip.sm_clocks_per_s > 0)
    return xp.where(modelled, attention_s[find_positions(rows)], products_s)

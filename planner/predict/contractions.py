"""Time of contractions: convolutions, matrix products by tiles, and fused attention. Pure formulas over arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..records import Frozen
from .coefficients import AcceleratorLimits, GenerationCoefficients, SharedCoefficients, StackCoefficients
from .fused_attention import BACKWARD, FORWARD, compute_attention_s
from .kernel_table import CATEGORIES, DEPTHWISE, KernelTable, find_products
from .roofline import (
    clock_share,
    compute_bandwidth_bytes_per_s,
    find_sharpness,
    select_by_category,
    select_rows,
    soft_max,
    soft_min,
    transforms_s,
)

# Output tiles available to cuBLAS and cuDNN. A smaller tile reads more operand bytes from shared memory per FLOP:
# the arithmetic intensity of a t x u tile is t*u/(t+u) ("Efficient GEMM in CUDA", CUTLASS, NVIDIA, 2017).
TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32), (16, 128))
# Numbers of parts of a k loop that is split among cores when there are too few output tiles (split-k).
SPLITS = (1, 4, 16, 64)
NEVER_S = 1e6  # penalty that excludes a tiling [s]
ROUNDED = 1.0 + 1e-4  # factor above the error of a time in single precision [-]
# Tiles in flight per core, which hide memory latency.
TILES_PER_CORE = 4.0


class Products(Frozen):
    """Matrix products [m, k] x [k, n], each on a chip; fields are numbers or arrays of [products]."""

    # m, n, k, batch: sizes of the products, and their number [-]
    m: Any
    n: Any
    k: Any
    batch: Any
    cores: Any  # P: streaming multiprocessors (GPU), matrix units (TPU) or cores (CPU) [-]
    core_flop_per_s: Any  # F, rate of one core with the best tile [FLOP/s]
    k_step: Any  # d, elements per step of the k loop [-]
    step_latency_s: Any  # L, latency of one unhidden step of the k loop [s]
    may_split: Any  # whether the k loop may be split
    sharpness: Any  # p, see `soft_max` [-]
    quantization: Any  # q; 0: fractional waves beyond the first, 1: whole waves only [-]
    split_cost: Any  # relative cost of each doubling of the split, for the sum of partial results [-]
    tile_exponent: Any  # see `tile_rate` [-]


def tiling_s(products: Products, *, rows: Any, columns: Any, splits: Any, xp: Any) -> Any:
    """Return the time of matrix products by one tiling [s].

    With tiles of r x c outputs, s-fold split k loop, the letters of `Products`, T = `TILES_PER_CORE`, the rate g
    of the tile (`tile_rate`) and ceil(x) the smallest integer >= x:

        v = ceil(m / r) ceil(n / c) batch s / P                    tiles per core
        w = max(v + q (ceil(v) - v), 1)                            waves; a partial first wave costs a full one
        l = ceil(k / (s d))                                        steps of the k loop, padded
        busy = 2 w r c l d / (g F)                                 arithmetic of padded tiles
        wait = max(w / T, 1) l L                                   latency hidden by T tiles in flight per core
        t = (busy^p + wait^p)^(1/p) (1 + split_cost log2 s)

    The maximum of arithmetic and latency is smooth because their ratio is equal for all large products on a chip:
    a sharp maximum would have a kink at one point for all of them, where the fit of coefficients gets stuck.

    Args:
        rows, columns: r, c, size of an output tile [-].
        splits: s, parts of the k loop [-].
    """
    of = products
    waves = xp.ceil(of.m / rows) * xp.ceil(of.n / columns) * of.batch / of.cores * splits
    waves = xp.maximum(waves + of.quantization * (xp.ceil(waves) - waves), 1.0)
    k_steps = xp.ceil(of.k / (splits * of.k_step))
    flop_per_s = of.core_flop_per_s * tile_rate(rows, columns, of.tile_exponent)
    busy_s = waves * k_steps * (rows * columns * of.k_step * 2.0 / flop_per_s)
    waiting_s = xp.maximum(waves / TILES_PER_CORE, 1.0) * (k_steps * of.step_latency_s)
    longest_s = soft_max(busy_s, waiting_s, sharpness=of.sharpness, xp=xp)
    return longest_s * (1.0 + of.split_cost * xp.log2(splits))


def best_tiling_s(products: Products, *, xp: Any) -> Any:
    """Return the time of matrix products by the fastest of all pairs of `TILES` and `SPLITS` [s].

    Gradients follow the chosen tiling alone.
    """
    if xp.__name__ != "numpy":
        rows, columns = (xp.asarray(sizes, float).reshape((-1, 1, 1)) for sizes in zip(*TILES, strict=True))
        parts = xp.asarray(SPLITS, float).reshape((-1, 1))
        times_s = tiling_s(products, rows=rows, columns=columns, splits=parts, xp=xp)
        times_s += xp.where(products.may_split | (parts == 1), 0.0, NEVER_S)
        fastest = divmod(times_s.reshape((-1, times_s.shape[-1])).argmin(axis=0), len(SPLITS))
        return _compute_chosen_s(products, *fastest, xp=xp)
    named = vars(products)
    shape = xp.broadcast_shapes(*map(xp.shape, named.values()))
    none = xp.zeros(shape)  # to broadcast arrays in less time than by `broadcast_to`
    flat = replace(products, **{name: (value + none).ravel() for name, value in named.items() if xp.ndim(value)})
    sharp_s = _compute_sharp_s(flat, xp=xp)
    bound_s, least_s = sharp_s.min(axis=0), xp.full(none.size, xp.inf)
    for _ in range(2):  # the fastest by a sharp maximum, then all that may be faster
        place = (sharp_s <= bound_s).ravel().nonzero()[0]
        tiling, product = divmod(place, none.size)
        chosen = divmod(tiling, len(SPLITS))
        xp.minimum.at(least_s, product, _compute_chosen_s(select_rows(flat, product), *chosen, xp=xp))
        sharp_s.ravel()[place], bound_s = xp.inf, least_s * ROUNDED
    return least_s.reshape(shape)


def _compute_chosen_s(products: Products, tile: Any, split: Any, *, xp: Any) -> Any:
    """Return the time of each product by a tiling of its own [s]."""
    rows, columns = (xp.asarray(sizes, float)[tile] for sizes in zip(*TILES, strict=True))
    return tiling_s(products, rows=rows, columns=columns, splits=xp.asarray(SPLITS, float)[split], xp=xp)


def _compute_sharp_s(of: Products, *, xp: Any) -> Any:
    """Return `tiling_s` with a sharp maximum, in single precision, array of [tilings, products] [s].

    It is never above that with the smooth one, so that few tilings are left to compare. With v, l, L and T as
    there, and one wave's time b for a step of the k loop: l max(w b, w L / T, L).
    """
    of = Products(**{name: xp.asarray(value, xp.float32) for name, value in vars(of).items()})
    rows, columns = (xp.asarray(sizes, xp.float32).reshape((-1, 1, 1)) for sizes in zip(*TILES, strict=True))
    parts = xp.asarray(SPLITS, xp.float32).reshape((-1, 1))
    tile_flop = rows * columns / tile_rate(rows, columns, of.tile_exponent) * 2
    wave_s = xp.maximum(tile_flop * (of.k_step / of.core_flop_per_s), of.step_latency_s / TILES_PER_CORE)
    waves = xp.ceil(of.m / rows) * xp.ceil(of.n / columns) * of.batch / of.cores * parts
    times_s = of.quantization * xp.ceil(waves)
    waves *= 1 - of.quantization
    times_s += waves
    times_s *= wave_s
    xp.maximum(times_s, xp.maximum(wave_s, of.step_latency_s), out=times_s)
    k_steps = xp.ceil(of.k / (parts * of.k_step)) * (1 + of.split_cost * xp.log2(parts))
    times_s *= xp.where((of.may_split > 0) | (parts == 1), k_steps, NEVER_S)
    return times_s.reshape((len(TILES) * len(SPLITS), -1))


def tile_rate(rows: Any, columns: Any, exponent: Any) -> Any:
    """Return the rate of a tile relative to the largest: (I / I_max)^exponent with I = r c / (r + c) [-]."""
    largest = TILES[0][0] * TILES[0][1] / (TILES[0][0] + TILES[0][1])
    return (rows * columns / (rows + columns) / largest) ** exponent


# Elements of the k loop loaded per step: CUTLASS's defaults for float32 on scalar units, and for tensor units up
# to Turing; 64 since Ampere (NVIDIA/cutlass@044405ce10e2
# include/cutlass/gemm/device/default_gemm_configuration.h, `ThreadblockShape`).
K_STEP, K_STEP_TENSOR = 8.0, 32.0
_SCALAR_SHARES = ("conv", "conv", "conv_wgrad", "depthwise", "dot", "dot", "dot")  # of `CONTRACTIONS`
# cuDNN's float32 convolutions do not split the k loop, except for weight gradients; cuBLAS may split it.
_FIRST_SPLITTING = CATEGORIES.index("conv_wgrad")
# Rate of products on tensor units of Hopper and later whose rows do not fill 16 bytes, relative to others: padding
# 588 columns to 592 saved 72 % of a product's time there (github.com/m87-labs/kestrel/pull/143).
UNALIGNED_SHARE = 0.28
# Time that a thread takes to locate an output of a depthwise convolution, in terms of the sum that it computes:
# three divisions by numbers that the compiler does not know, some 20 instructions each, beside some 10 for a term
# (aten/src/ATen/native/cuda/DepthwiseConv2d.cu of PyTorch, `conv_depthwise2d_forward_kernel`).
OUTPUT_TERMS = 7.0
USUAL_TERMS = 9.0  # of a filter of 3 x 3, for which the share of the peak is fitted
_PEAK_SHARPNESS = 6.0  # of the limit of a share of the peak to 1


def _compute_scalar_share(
    table: KernelTable, generation: GenerationCoefficients, stack: StackCoefficients, *, xp: Any
) -> Any:
    """Return the share of the scalar units' peak that each contraction attains [-]."""
    share = select_by_category(generation, _SCALAR_SHARES, table.category, xp)
    per_term = (1.0 + OUTPUT_TERMS / USUAL_TERMS) / (1.0 + OUTPUT_TERMS / xp.maximum(table.k, 1.0))
    share = xp.where(table.category == DEPTHWISE, share * per_term, share)
    # The gradient of a depthwise filter: see `name_rate`.
    of_filter = (table.k > table.m) & (table.m % xp.maximum(table.n, 1) == 0)
    filter_gradient = (table.category == DEPTHWISE) & of_filter
    share = xp.where(filter_gradient, generation.depthwise_wgrad, share)
    share = xp.where(table.of_product > 0.0, generation.dot * table.of_product, share)
    # For products all frameworks call the same library, as on tensor units; for convolutions each has its choice.
    # Rates on a CPU are a backend's own.
    own_rate = find_products(table.category) | (table.of_product > 0.0)
    share = share * xp.where(own_rate, 1.0, stack.contraction)
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
    """Return the time of one launch of each contraction without memory traffic [s], array of [kernels].

    The sum of the arithmetic by the best tiling and of Winograd's or Fourier transforms, or the arithmetic of a
    depthwise convolution. Fused attention without tensor units, and on chips other than NVIDIA's, is timed as a
    matrix product of its size.

    Args:
        table: Contractions only.
    """
    is_dot = find_products(table.category)
    scalar = _compute_scalar_share(table, generation, stack, xp=xp)
    scalar = scalar * xp.where(is_dot, chip.issue_share, 1.0)
    # How well convolutions use tensor units depends on the framework's layouts and on how it chooses algorithms;
    # for products all call the same library.
    matrix = xp.where(is_dot, generation.dot_tensor, generation.conv_tensor * stack.tensor)
    # Chips before Hopper load such rows, too: their libraries' rates are among the fitted ones.
    matrix = matrix * xp.where(table.unaligned & (chip.warpgroup_sharing > 1.0), UNALIGNED_SHARE, 1.0)
    density = xp.where(is_dot, 0.0, shared.tensor_density)
    matrix = soft_min(1.0, matrix / chip.tensor_density**density, sharpness=_PEAK_SHARPNESS)
    gain = xp.where(table.winograd & chip.winograd, generation.winograd_gain, 1.0)
    clock = clock_share(chip, shared)
    share = xp.where(chip.tensor, matrix, scalar * gain)
    # A measured share of the peak includes the clock under load.
    limit = xp.where(chip.tensor & (chip.matmul_share > 0), chip.matmul_share, clock)
    nominal_flops = 2.0 * table.m * table.n * table.k * table.batch
    zeros = xp.where(table.serial & (table.flops > 0.0), nominal_flops / xp.maximum(table.flops, 1.0), 1.0)
    attainable_flop_per_s = chip.peak_flop_per_s * share * limit * zeros
    products = Products(
        m=table.m,
        n=table.n,
        k=table.k,
        batch=xp.where(table.category == DEPTHWISE, 0.0, table.batch),  # no products of them are timed
        cores=chip.cores,
        core_flop_per_s=attainable_flop_per_s / chip.cores,
        k_step=xp.where(chip.tensor, K_STEP_TENSOR, K_STEP),
        step_latency_s=generation.step_latency_s * xp.where(table.serial, shared.serial, 1.0) / clock,
        may_split=((table.category >= _FIRST_SPLITTING) | chip.tensor) & ~table.serial,
        sharpness=find_sharpness(table, shared, xp),
        quantization=shared.quantization,
        split_cost=shared.split_cost,
        tile_exponent=shared.tile_exponent,
    )
    tiled_s = best_tiling_s(products, xp=xp)
    # Depthwise convolutions run on scalar units for every operand type, without padding, and two 16-bit operands
    # take the time of one, whatever the layout.
    paired = xp.where(chip.pairs, 2.0, 1.0)
    sliding_s = table.flops / (chip.vector_flop_per_s * scalar * paired * clock)
    clocks_per_s = chip.sm_clocks_per_s / chip.cores * clock
    adding_s = 0.5 * table.flops / xp.maximum(generation.atomics * clocks_per_s, 1.0)
    sliding_s = xp.where(table.serial, adding_s, sliding_s)
    around_s = transforms_s(
        table,
        chip,
        generation,
        clock=clock,
        xp=xp,
        bandwidth_bytes_per_s=compute_bandwidth_bytes_per_s(chip, stack, shared, share=generation.stream, xp=xp),
    )
    products_s = xp.where(table.category == DEPTHWISE, sliding_s, tiled_s + around_s)
    return _replace_attention_s(products_s, table, chip, clock=clock, xp=xp)


def _replace_attention_s(
    products_s: Any, table: KernelTable, chip: AcceleratorLimits, *, clock: Any, xp: Any
) -> Any:
    """Return the times of contractions [s] with those of fused attention in the place of products of its size."""
    rows = (table.category == FORWARD) | (table.category == BACKWARD)
    if not rows.any():
        return products_s
    chosen = rows.nonzero()[0]
    attention_s = compute_attention_s(
        select_rows(table, chosen),
        select_rows(chip, chosen),
        clock=clock[..., chosen] if xp.ndim(clock) and clock.shape[-1] > 1 else clock,
        xp=xp,
    )
    place = chosen.searchsorted(range(len(rows))).clip(max=len(chosen) - 1)
    modelled = rows & chip.tensor & (chip.sm_clocks_per_s > 0)
    return xp.where(modelled, attention_s[..., place], products_s)

"""Roofline time of a kernel with tile and wave quantization, memory latency, caches and Winograd transforms.

Pure formulas on arrays; ``xp`` is the array module: NumPy for predictions, jax.numpy for fits.
"""

from __future__ import annotations

from typing import Any

from ..coefficients import AcceleratorLimits, GenerationCoefficients
from ..kernels.table import CONVOLUTIONS, KernelTable

__all__ = [
    "SPLITS",
    "TILES",
    "best_tiling_s",
    "memory_traffic_s",
    "soft_max",
    "soft_min",
    "tile_rate",
    "tiling_s",
    "transforms_s",
]


# Output tiles available to cuBLAS and cuDNN. A smaller tile reads more operand bytes from shared memory per FLOP:
# the arithmetic intensity of a t x u tile is t*u/(t+u) ("Efficient GEMM in CUDA", CUTLASS, NVIDIA, 2017).
TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32), (16, 128))
# Numbers of parts of a k loop that is split among cores when there are too few output tiles (split-k).
SPLITS = (1, 4, 16, 64)
NOT_ZERO_BYTES = 1e-300  # added to a sum that may be 0; it changes no other sum [bytes]
TILINGS = tuple((rows, columns, splits) for rows, columns in TILES for splits in SPLITS)
NEVER_S = 1e6  # penalty that excludes a tiling [s]
# Tiles in flight per core, which hide memory latency.
TILES_PER_CORE = 4.0
_TINY_S = 1e-15  # keeps the gradient of 0^p finite


def soft_max(a: Any, b: Any, *, sharpness: float, xp: Any) -> Any:
    """Return the p-norm (a^p + b^p)^(1/p), a smooth maximum: the time of work that overlaps imperfectly.

    Args:
        a, b: Non-negative times [s], equal shapes.
        sharpness: p >= 1; 1 adds (no overlap), infinity is the maximum (perfect overlap) [-].

    Example:
        >>> import numpy as np
        >>> round(float(soft_max(3.0, 4.0, sharpness=2.0, xp=np)), 9)
        5.0
    """
    larger = xp.maximum(a, b)
    ratio = (xp.minimum(a, b) + _TINY_S) / (larger + _TINY_S)
    return larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)


def soft_min(a: Any, b: Any, *, sharpness: float) -> Any:
    """Return a smooth minimum, (a^-p + b^-p)^(-1/p), of two positive numbers.

    Example:
        >>> round(soft_min(1.0, 1.0, sharpness=6.0), 3), round(soft_min(1.0, 0.4, sharpness=6.0), 3)
        (0.891, 0.4)
    """
    return (a**-sharpness + b**-sharpness) ** (-1.0 / sharpness)


def memory_traffic_s(*, bytes_moved: Any, attainable_bytes_per_s: Any, l2_bytes: Any, l2_reuse: Any) -> Any:
    """Return the time of a kernel's memory traffic with second-level cache hits [s].

    t = B (1 - r C / (C + B)) / W with traffic B, cache size C, reuse r and bandwidth W: data left in the cache by
    the previous kernel is not read again.

    Args:
        bytes_moved: B, traffic of one launch [bytes].
        attainable_bytes_per_s: W, attainable bandwidth [bytes/s].
        l2_bytes: C, second-level cache [bytes].
        l2_reuse: r, share of cached data that is reused [-].

    A kernel without traffic takes no time, on a chip without a known cache as well.
    """
    missed = 1.0 - l2_reuse * l2_bytes / (l2_bytes + bytes_moved + NOT_ZERO_BYTES)
    return bytes_moved * missed / attainable_bytes_per_s


def tiling_s(
    *,
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    cores: Any,
    core_flop_per_s: Any,
    rows: Any,
    columns: Any,
    splits: Any,
    k_step: Any,
    quantization: Any,
    split_cost: Any,
    step_latency_s: Any,
    sharpness: Any,
    xp: Any,
) -> Any:
    """Return the time of ``batch`` matrix products [m, k] x [k, n] by one tiling [s].

    With tiles of r x c outputs, s-fold split k loop, steps of d elements, P cores of F FLOP/s, quantization q,
    latency L, T = `TILES_PER_CORE` and ceil(x) the smallest integer >= x:

        v = ceil(m / r) ceil(n / c) batch s / P                    tiles per core
        w = max(v + q (ceil(v) - v), 1)                            waves; a partial first wave costs a full one
        l = ceil(k / (s d))                                        steps of the k loop, padded
        busy = 2 w r c l d / F                                     arithmetic of padded tiles
        wait = max(w / T, 1) l L                                   latency hidden by T tiles in flight per core
        t = (busy^p + wait^p)^(1/p) (1 + split_cost log2 s)        p = ``sharpness``

    The maximum of arithmetic and latency is smooth because their ratio is equal for all large products on a chip:
    a sharp maximum would have a kink at one point for all of them, where the fit of coefficients gets stuck.

    Args:
        m, n, k, batch: Sizes of the products, and their number [-].
        cores: P: streaming multiprocessors (GPU), matrix units (TPU) or cores (CPU) [-].
        core_flop_per_s: F, rate of one core with this tile [FLOP/s].
        rows, columns: r, c, size of an output tile [-].
        splits: s, parts of the k loop [-].
        k_step: d, elements per step of the k loop [-].
        quantization: q; 0: fractional waves beyond the first, 1: whole waves only [-].
        split_cost: Relative cost of each doubling of the split, for the sum of partial results [-].
        step_latency_s: L, latency of one unhidden step of the k loop [s].
        sharpness: p, see `soft_max` [-].
    """
    waves = xp.ceil(m / rows) * xp.ceil(n / columns) * batch * splits / cores
    waves = xp.maximum(waves + quantization * (xp.ceil(waves) - waves), 1.0)
    k_steps = xp.ceil(k / (splits * k_step))
    busy_s = waves * rows * columns * k_steps * k_step * 2.0 / core_flop_per_s
    waiting_s = xp.maximum(waves / TILES_PER_CORE, 1.0) * k_steps * step_latency_s
    tiles_s = soft_max(busy_s, waiting_s, sharpness=sharpness, xp=xp)
    return tiles_s * (1.0 + split_cost * xp.log2(splits))


def best_tiling_s(
    *,
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    cores: Any,
    core_flop_per_s: Any,
    tile_exponent: Any,
    k_step: Any,
    quantization: Any,
    split_cost: Any,
    may_split: Any,
    step_latency_s: Any,
    sharpness: Any,
    xp: Any,
) -> Any:
    """Return the time of matrix products by the fastest of `TILINGS` [s].

    The tiling is chosen first, and its time computed again: gradients then follow only the chosen tiling.

    Args:
        m, n, k, batch, cores, k_step, quantization, split_cost, step_latency_s, sharpness: See `tiling_s`.
        core_flop_per_s: Rate of one core with the best tile [FLOP/s].
        tile_exponent: See `tile_rate` [-].
        may_split: Whether the k loop of a product may be split.
    """

    def time_s(rows: Any, columns: Any, splits: Any) -> Any:
        rate = tile_rate(rows, columns, tile_exponent)
        return tiling_s(
            m=m,
            n=n,
            k=k,
            batch=batch,
            cores=cores,
            core_flop_per_s=core_flop_per_s * rate,
            rows=rows,
            columns=columns,
            splits=splits,
            k_step=k_step,
            quantization=quantization,
            split_cost=split_cost,
            step_latency_s=step_latency_s,
            sharpness=sharpness,
            xp=xp,
        )

    tilings = [xp.asarray(column) * 1.0 for column in zip(*TILINGS, strict=True)]
    rows, columns, splits = (column.reshape((-1,) + (1,) * xp.ndim(m)) for column in tilings)
    never_s = xp.where(may_split | (splits == 1.0), 0.0, NEVER_S)
    chosen = xp.argmin(time_s(rows, columns, splits) + never_s, axis=0)
    return time_s(*(column[chosen] for column in tilings))


def tile_rate(rows: Any, columns: Any, exponent: Any) -> Any:
    """Return the rate of a tile relative to the largest: (I / I_max)^exponent with I = r c / (r + c) [-].

    Example:
        >>> tile_rate(32, 32, 0.5)
        0.5
    """
    largest = TILES[0][0] * TILES[0][1] / (TILES[0][0] + TILES[0][1])
    return (rows * columns / (rows + columns) / largest) ** exponent


_WGRAD = CONVOLUTIONS.index("conv_wgrad")
_FILTER_BYTES = 4.0  # per element: cuDNN supports these algorithms on scalar units in float32 only


def transforms_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    *,
    bandwidth_bytes_per_s: Any,
    clock: Any,
    xp: Any,
) -> Any:
    """Return the time of Winograd's or Fourier transforms per launch of each contraction [s], array of [kernels].

    t = p_f B_f / R + p_a B_a / W with passes p_f over the filter of B_f bytes at rate R, and p_a over the arrays
    of B_a bytes at bandwidth W. Transformed filters and arrays are written and read again (Lavin and Gray, 2016,
    CVPR, section 4): F(4x4, 3x3) turns 9 filter elements into 36 and 16 array elements into 36, which is 8 more
    passes over a filter and 4.5 over an array if each is written and read once. Kernels that keep a tile in
    registers need fewer, Fourier tiles of 32x32 need more. The numbers of passes are fitted.

    Filter transforms are bound by instruction issue, not by memory, so R is proportional to cores and clock:
    fitted passes on K80, M60, P100, T4 and V100 then differ by up to 1.5 times, and up to 2 times with R
    proportional to bandwidth.

    Args:
        table: Contractions only.
        chip, generation: Coefficients of each row.
        bandwidth_bytes_per_s: W, bandwidth for arrays [bytes/s].
        clock: Clock under load relative to the boost clock [-].
    """
    across = xp.where(table.category == _WGRAD, table.m, table.k)
    filter_bytes = across * table.n * _FILTER_BYTES
    issued_bytes_per_s = chip.memory_bytes_per_s / chip.memory_density * clock
    filters_s = generation.filter_passes * filter_bytes / issued_bytes_per_s
    arrays_s = generation.array_passes * table.bytes_moved / bandwidth_bytes_per_s
    return xp.where(table.winograd & chip.winograd & ~chip.tensor, filters_s + arrays_s, 0.0)

"""Time of a kernel on a chip: a roofline whose roofs know about tiles, waves and small kernels.

Pure formulas on arrays; ``xp`` is the array module (NumPy to predict, jax.numpy to fit with exact gradients).
Seconds, bytes, FLOP and their rates everywhere.
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


# Output tiles that cuBLAS and cuDNN choose among, and the rate of each relative to the best: a smaller tile
# reads more operand bytes from shared memory per FLOP. The arithmetic intensity of a t x u tile against
# shared memory is t*u/(t+u); CUTLASS documents the tile family ("Efficient GEMM in CUDA", NVIDIA, 2017).
TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32), (16, 128))
# How many ways the k loop may be divided among cores when there are too few output tiles.
SPLITS = (1, 4, 16, 64)
TILINGS = tuple((rows, columns, splits) for rows, columns in TILES for splits in SPLITS)
NEVER_S = 1e6  # a time that no product takes: what a tiling that is not allowed costs
# Tiles that one core keeps in flight at a time, to hide the latency of memory.
TILES_PER_CORE = 4.0
_TINY_S = 1e-15  # keeps the gradient of 0^p finite; a thousandth of a clock tick


def soft_max(a: Any, b: Any, *, sharpness: float, xp: Any) -> Any:
    """Return a smooth maximum, (a^p + b^p)^(1/p): work that overlaps, but not perfectly.

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
    """Return the time that a kernel's traffic takes [s].

    What a cache still holds of the kernel before need not be read again.

    Args:
        bytes_moved: Of one launch [bytes].
        attainable_bytes_per_s: What memory gives at best [bytes/s].
        l2_bytes: Second-level cache [bytes].
        l2_reuse: Share of what fits into the cache that is found there [-].
    """
    missed = 1.0 - l2_reuse * l2_bytes / (l2_bytes + bytes_moved)
    return bytes_moved * missed / attainable_bytes_per_s


def tiling_s(
    *, m: Any, n: Any, k: Any, batch: Any, cores: Any, core_flop_per_s: Any, rows: Any, columns: Any,
    splits: Any, k_step: Any, quantization: Any, split_cost: Any, step_latency_s: Any, sharpness: Any, xp: Any,
) -> Any:  # fmt: skip
    """Return the time of products by one tiling [s].

    Every output tile is padded to the full tile, the k loop to its step. Tiles run in waves of ``cores``;
    less than one wave takes as long as a full one. Each step of the k loop waits for memory at least once,
    which only `TILES_PER_CORE` tiles at a time can hide: a few tiles with a long loop are bound by latency. The
    larger of both is taken softly: with many tiles their ratio is the same for all products of a chip, and a sharp
    maximum would bend the time of all of them at one point, where no search for coefficients gets past.

    Args:
        m, n, k, batch: The product, ``batch`` independent ones [-].
        cores: Streaming multiprocessors (GPU), matrix units (TPU) or cores (CPU) [-].
        core_flop_per_s: What one core attains with this tile [FLOP/s].
        rows, columns: Of the output that one core computes at a time [-].
        splits: Parts that the k loop is divided into [-].
        k_step: Granularity of the k loop [-].
        quantization: 0: waves may be fractional beyond the first; 1: whole waves only [-].
        split_cost: Relative cost of each doubling of the split (partial sums are added up) [-].
        step_latency_s: Of one step of the k loop when nothing hides it [s].
        sharpness: See `soft_max` [-].
    """
    waves = xp.ceil(m / rows) * xp.ceil(n / columns) * batch * splits / cores
    waves = xp.maximum(waves + quantization * (xp.ceil(waves) - waves), 1.0)
    k_steps = xp.ceil(k / (splits * k_step))
    busy_s = waves * rows * columns * k_steps * k_step * 2.0 / core_flop_per_s
    waiting_s = xp.maximum(waves / TILES_PER_CORE, 1.0) * k_steps * step_latency_s
    tiles_s = soft_max(busy_s, waiting_s, sharpness=sharpness, xp=xp)
    return tiles_s * (1.0 + split_cost * xp.log2(splits))


def best_tiling_s(
    *, m: Any, n: Any, k: Any, batch: Any, cores: Any, core_flop_per_s: Any, tile_exponent: Any, k_step: Any,
    quantization: Any, split_cost: Any, may_split: Any, step_latency_s: Any, sharpness: Any, xp: Any,
) -> Any:  # fmt: skip
    """Return the time of products by the fastest of the tilings that a library would choose from [s].

    The choice is made first and timed after, so that a gradient follows the chosen tiling alone.

    Args:
        core_flop_per_s: What one core attains with the best tile [FLOP/s].
        tile_exponent: How a tile's rate falls with its arithmetic intensity [-].
        split_cost: Relative cost of each doubling of the split (partial sums are added up) [-].
        may_split: Whether the k loop of a product may be split at all.
    """

    def time_s(rows: Any, columns: Any, splits: Any) -> Any:
        rate = tile_rate(rows, columns, tile_exponent)
        return tiling_s(
            m=m, n=n, k=k, batch=batch, cores=cores, core_flop_per_s=core_flop_per_s * rate, rows=rows,
            columns=columns, splits=splits, k_step=k_step, quantization=quantization, split_cost=split_cost,
            step_latency_s=step_latency_s, sharpness=sharpness, xp=xp,
        )  # fmt: skip

    tilings = [xp.asarray(column) * 1.0 for column in zip(*TILINGS, strict=True)]
    rows, columns, splits = (column.reshape((-1,) + (1,) * xp.ndim(m)) for column in tilings)
    never_s = xp.where(may_split | (splits == 1.0), 0.0, NEVER_S)
    chosen = xp.argmin(time_s(rows, columns, splits) + never_s, axis=0)
    return time_s(*(column[chosen] for column in tilings))


def tile_rate(rows: Any, columns: Any, exponent: Any) -> Any:
    """Return a tile's rate relative to the largest: its arithmetic intensity to a power [-].

    Example:
        >>> tile_rate(32, 32, 0.5)
        0.5
    """
    largest = TILES[0][0] * TILES[0][1] / (TILES[0][0] + TILES[0][1])
    return (rows * columns / (rows + columns) / largest) ** exponent


_WGRAD = CONVOLUTIONS.index("conv_wgrad")
_FILTER_BYTES = 4.0  # an element; cuDNN has these algorithms on scalar units for float32 alone


def transforms_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    *,
    bandwidth_bytes_per_s: Any,
    clock: Any,
    xp: Any,
) -> Any:
    """Return the time of the transforms around one launch of each contraction [s], array of [kernels].

    An algorithm that multiplies less writes every filter and every tile of an array in another form first, and
    the products read that (Lavin and Gray, 2016, CVPR, section 4). Of F(4x4, 3x3) the 9 elements of a filter
    become 36, and 16 of an array 36: 8 more passes over a filter, 4.5 over an array, were each form written and
    read once. Kernels that hold a tile in registers save some; Fourier's tiles of 32x32 take more of a filter.
    How many there are is fitted.

    A filter is small and turned by a thread each: such kernels are bound by what the cores issue, not by memory.
    Between K80, M60, P100, T4 and V100 the passes differ by half at a rate that goes with cores and clock, and are
    half or double at one that goes with bandwidth.

    Args:
        table: Contractions alone.
        chip, generation: Coefficients of each row.
        bandwidth_bytes_per_s: Of arrays [bytes/s].
        clock: Under load, over the boost clock [-].
    """
    across = xp.where(table.category == _WGRAD, table.m, table.k)
    filter_bytes = across * table.n * _FILTER_BYTES
    issued_bytes_per_s = chip.memory_bytes_per_s / chip.memory_density * clock
    filters_s = generation.filter_passes * filter_bytes / issued_bytes_per_s
    arrays_s = generation.array_passes * table.bytes_moved / bandwidth_bytes_per_s
    return xp.where(table.winograd & chip.winograd & ~chip.tensor, filters_s + arrays_s, 0.0)

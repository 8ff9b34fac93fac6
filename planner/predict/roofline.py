"""Time of a kernel on a chip: a roofline whose roofs know about tiles, waves and small kernels.

Pure formulas on arrays; ``xp`` is the array module (NumPy to predict, jax.numpy to fit with exact gradients).
Seconds, bytes, FLOP and their rates everywhere.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SPLITS", "TILES", "soft_max", "tiled_work_flops", "tiles_busy_flops"]

# Output tiles that cuBLAS and cuDNN choose among, and the rate of each relative to the best: a smaller tile
# reads more operand bytes from shared memory per FLOP. The arithmetic intensity of a t x u tile against
# shared memory is t*u/(t+u); CUTLASS documents the tile family ("Efficient GEMM in CUDA", NVIDIA, 2017).
TILES = ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32))
# How many ways the k loop may be divided among cores when there are too few output tiles.
SPLITS = (1, 2, 4, 8, 16)
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


def tiles_busy_flops(
    *, m: Any, n: Any, k: Any, batch: Any, cores: float, tile: tuple[int, int], splits: int, k_step: float,
    quantization: Any, xp: Any,
) -> Any:  # fmt: skip
    """Return the FLOPs that the chip could have done while one tiling runs [FLOP].

    Every output tile is padded to the full tile, the k loop to its step; tiles run in waves of ``cores``.
    Less than one wave occupies the chip as long as a full one.

    Args:
        m, n, k, batch: The product, ``batch`` independent ones [-].
        cores: Streaming multiprocessors (GPU), matrix units (TPU) or cores (CPU) [-].
        tile: Rows and columns of the output that one core computes at a time [-].
        splits: Parts that the k loop is divided into [-].
        k_step: Granularity of the k loop [-].
        quantization: 0: waves may be fractional beyond the first; 1: whole waves only [-].
    """
    rows, columns = tile
    tiles = xp.ceil(m / rows) * xp.ceil(n / columns) * batch * splits
    waves = tiles / cores
    waves = xp.maximum(waves + quantization * (xp.ceil(waves) - waves), 1.0)
    k_padded = xp.ceil(k / (splits * k_step)) * k_step
    return waves * cores * rows * columns * k_padded * 2.0


def tiled_work_flops(
    *, m: Any, n: Any, k: Any, batch: Any, cores: float, tile_rates: Any, k_step: float, quantization: Any,
    split_cost: Any, xp: Any,
) -> Any:  # fmt: skip
    """Return the busy FLOPs of the best tiling, slower tiles charged by their rate [FLOP].

    Args:
        tile_rates: Rate of each tile of `TILES` relative to the fastest, 0..1 [-].
        split_cost: Relative cost of each doubling of the split (partial sums are added up) [-].
    """
    best = None
    for tile, rate in zip(TILES, tile_rates, strict=True):
        for doublings, splits in enumerate(SPLITS):
            busy = tiles_busy_flops(
                m=m, n=n, k=k, batch=batch, cores=cores, tile=tile, splits=splits, k_step=k_step,
                quantization=quantization, xp=xp,
            ) * (1.0 + split_cost * doublings) / rate  # fmt: skip
            best = busy if best is None else xp.minimum(best, busy)
    return best

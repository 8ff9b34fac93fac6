"""Overlap of arithmetic and memory traffic, caches, and transforms of convolutions.

Pure formulas on arrays; ``xp`` is the array module: NumPy for predictions, jax.numpy for fits.
"""

from __future__ import annotations

from typing import Any

from ..coefficients import AcceleratorLimits, GenerationCoefficients
from ..kernels.table import CONVOLUTIONS, KernelTable

NOT_ZERO_BYTES = 1e-300  # added to a sum that may be 0; it changes no other sum [bytes]
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

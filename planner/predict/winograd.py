"""What Winograd's and Fourier's algorithms cost beside their products: transforms of filters and of arrays."""

from __future__ import annotations

from typing import Any

from .coefficients import Chip, Generation
from .kernels import CONVOLUTIONS, KernelTable

__all__ = ["transforms_s"]

_WGRAD = CONVOLUTIONS.index("conv_wgrad")
_FILTER_BYTES = 4.0  # an element; cuDNN has these algorithms on scalar units for float32 alone


def transforms_s(
    table: KernelTable, chip: Chip, generation: Generation, *, bandwidth_bytes_per_s: Any, clock: Any, xp: Any
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

"""Time of kernels on a TPU: arrays of multiply-adds that stream tiles, memory at its datasheet rate.

Pure formulas. Nothing here was fitted. What kernels of GPUs are fitted with (waves of tiles over cores, launch
gaps, clocks that drop under load, a shared cache) does not exist there: a step is one program, and the compiler
schedules its memory. What is left is a roofline with the padding that the arrays enforce. It is checked on
published steps (`gpuplan accuracy`, setting `tpu`). It knows nothing of random bits, sorts and gathers beyond
their bytes.
"""

from __future__ import annotations

from typing import Any

from ..coefficients import AcceleratorLimits
from ..kernels.table import CATEGORIES, KernelTable
from .roofline import soft_max

__all__ = ["padded_flops", "systolic_parts_s"]

SUBLANES = 8  # rows of a vector register (Jouppi et al., 2021, doi:10.1109/ISCA52012.2021.00010)
SHARPNESS = (
    4.0  # of the maximum of arithmetic and traffic, which overlap by double buffering: nearly a maximum
)
_DEPTHWISE = CATEGORIES.index("depthwise")


def padded_flops(*, m: Any, n: Any, k: Any, batch: Any, lanes: Any, xp: Any) -> Any:
    """Return what an array of ``lanes`` x ``lanes`` multiply-adds spends on products [FLOP].

    The contracted dimension and one of the others fill whole sides of the array; the third streams through in
    groups of 8. The better of the two ways is taken.

    Args:
        m, n, k: The product, ``batch`` independent ones [-].
        lanes: Side of the array: 128, or 256 from TPU v6e on [-].

    Example:
        >>> import numpy as np
        >>> float(padded_flops(m=1000, n=64, k=64, batch=1, lanes=128, xp=np)) / (2 * 1000 * 64 * 64)
        2.048
    """
    held_n = xp.ceil(m / SUBLANES) * SUBLANES * xp.ceil(n / lanes) * lanes
    held_m = xp.ceil(n / SUBLANES) * SUBLANES * xp.ceil(m / lanes) * lanes
    return 2.0 * batch * xp.minimum(held_n, held_m) * xp.ceil(k / lanes) * lanes


def systolic_parts_s(table: KernelTable, chip: AcceleratorLimits, *, xp: Any) -> tuple[Any, Any, Any]:
    """Return total time, arithmetic time and memory time of each row, all launches together [s].

    A step is one program whose kernels follow each other without the host: there is no launch gap.

    Args:
        table: Kernels of the step.
        chip: A TPU.
        xp: Array module.
    """
    first = table.contractions
    products = padded_flops(
        m=table.m[:first],
        n=table.n[:first],
        k=table.k[:first],
        batch=table.batch[:first],
        lanes=chip.lanes,
        xp=xp,
    )
    product_s = products / chip.peak_flop_per_s[:first]
    # One filter a channel is no product: the vector unit does it.
    vector_s = table.flops / chip.vector_flop_per_s
    product_s = xp.where(table.category[:first] == _DEPTHWISE, vector_s[:first], product_s)
    compute_s = xp.concatenate([product_s, vector_s[first:]])
    memory_s = table.bytes_moved / chip.memory_bytes_per_s
    total_s = soft_max(compute_s, memory_s, sharpness=SHARPNESS, xp=xp)
    return total_s * table.count, compute_s * table.count, memory_s * table.count

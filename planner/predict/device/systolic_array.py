"""Time of kernels on a TPU: a roofline at datasheet rates with the padding of its systolic arrays.

Pure formulas without fitted constants: waves of tiles, launch gaps, throttled clocks and a shared cache do not
exist on a TPU, where a step is one program whose memory is scheduled by the compiler. Published steps validate it
(`gpuplan accuracy`, setting `tpu`). Random bits, sorts and gathers are modelled by their memory traffic only.
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
    """Return the padded FLOPs of matrix products on a systolic array of L x L multiply-adds [FLOP].

    2 batch L ceil(k / L) min(8 ceil(m / 8) L ceil(n / L), 8 ceil(n / 8) L ceil(m / L)): the contracted dimension
    and one other are padded to the sides of the array, the third streams through in groups of 8; the better
    assignment is taken.

    Args:
        m, n, k, batch: Sizes of the products, and their number [-].
        lanes: L, side of the array: 128, or 256 from TPU v6e on [-].

    Example:
        >>> import numpy as np
        >>> float(padded_flops(m=1000, n=64, k=64, batch=1, lanes=128, xp=np)) / (2 * 1000 * 64 * 64)
        2.048
    """
    held_n = xp.ceil(m / SUBLANES) * SUBLANES * xp.ceil(n / lanes) * lanes
    held_m = xp.ceil(n / SUBLANES) * SUBLANES * xp.ceil(m / lanes) * lanes
    return 2.0 * batch * xp.minimum(held_n, held_m) * xp.ceil(k / lanes) * lanes


def systolic_parts_s(table: KernelTable, chip: AcceleratorLimits, *, xp: Any) -> tuple[Any, Any, Any]:
    """Return total, arithmetic and memory time of all launches of each row [s].

    There are no launch gaps: a step is one program that runs without the host.

    Args:
        table: Kernels of the step.
        chip: Limits of a TPU.
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
    # Depthwise convolutions run on the vector unit.
    vector_s = table.flops / chip.vector_flop_per_s
    product_s = xp.where(table.category[:first] == _DEPTHWISE, vector_s[:first], product_s)
    compute_s = xp.concatenate([product_s, vector_s[first:]])
    memory_s = table.bytes_moved / chip.memory_bytes_per_s
    total_s = soft_max(compute_s, memory_s, sharpness=SHARPNESS, xp=xp)
    return total_s * table.count, compute_s * table.count, memory_s * table.count

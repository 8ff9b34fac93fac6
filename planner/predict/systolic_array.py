"""Time of kernels on a TPU: a roofline with the padding of its systolic arrays.

Waves of tiles, launch gaps, throttled clocks and a shared cache do not exist on a TPU, where a step is one program
whose memory is scheduled by the compiler. The shares of the peak that products and fused attention reach are
fitted on published steps (`benchmarks/tpu_steps.py`). Random bits, sorts and gathers are modelled by their memory
traffic only.
"""

from __future__ import annotations

from typing import Any

from .coefficients import AcceleratorLimits
from .kernel_table import ATTENTION_PASSES, CATEGORIES, DEPTHWISE, KernelTable
from .roofline import soft_max

SUBLANES = 8  # rows of a vector register (Jouppi et al., 2021, doi:10.1109/ISCA52012.2021.00010)
SHARPNESS = 4.0  # of the maximum of arithmetic and traffic, which overlap by double buffering: nearly a maximum
_FIRST_ATTENTION = CATEGORIES.index(ATTENTION_PASSES[0])
# Shares of the datasheet's peak that matrix units reach in training steps [-]: of products, on chips without a
# `matmul_share` in the catalog, and of both passes of fused attention. Fitted, with the share of v6e, on steps of
# Llama of 8 and 70 billion parameters, whose products have sides of 4,096 to 28,672; smaller ones may reach less.
# One product of 8192 cubed alone reaches 0.82 to 0.90 of a v6e's peak (AI-Hypercomputer/tpu-recipes@c8cfe2f6
# microbenchmarks/README.md).
USUAL_PRODUCT_SHARE, ATTENTION_SHARE = 0.754, 0.379


def padded_flops(*, m: Any, n: Any, k: Any, batch: Any, lanes: Any, xp: Any) -> Any:
    """Return the padded FLOPs of matrix products on a systolic array of L x L multiply-adds [FLOP].

    2 batch L ceil(k / L) min(8 ceil(m / 8) L ceil(n / L), 8 ceil(n / 8) L ceil(m / L)): the contracted dimension
    and one other are padded to the sides of the array, the third streams through in groups of 8; the better
    assignment is taken.

    Args:
        lanes: L, side of the array: 128, or 256 from TPU v6e on [-].
    """
    held_n = xp.ceil(m / SUBLANES) * SUBLANES * xp.ceil(n / lanes) * lanes
    held_m = xp.ceil(n / SUBLANES) * SUBLANES * xp.ceil(m / lanes) * lanes
    return 2.0 * batch * xp.minimum(held_n, held_m) * xp.ceil(k / lanes) * lanes


def systolic_parts_s(
    table: KernelTable, chip: AcceleratorLimits, *, attention_share: float = ATTENTION_SHARE, xp: Any
) -> tuple[Any, Any, Any]:
    """Return total, arithmetic and memory time of all launches of each row [s].

    There are no launch gaps: a step is one program that runs without the host.

    Args:
        chip: Limits of a TPU; `matmul_share` is that of matrix products.
        attention_share: Share of the peak that fused attention reaches [-].
    """
    products = padded_flops(m=table.m, n=table.n, k=table.k, batch=table.batch, lanes=chip.lanes, xp=xp)
    fused = table.category >= _FIRST_ATTENTION
    share = xp.where(fused, attention_share, chip.matmul_share)
    # Depthwise convolutions run on the vector unit, as everything but products does.
    on_arrays = (xp.arange(len(table.category)) < table.contractions) & (table.category != DEPTHWISE)
    compute_s = xp.where(
        on_arrays, products / (share * chip.peak_flop_per_s), table.flops / chip.vector_flop_per_s
    )
    memory_s = table.bytes_moved / chip.memory_bytes_per_s
    total_s = soft_max(compute_s, memory_s, sharpness=SHARPNESS, xp=xp)
    return total_s * table.count, compute_s * table.count, memory_s * table.count

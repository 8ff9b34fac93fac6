"""Time that the device and the host spend on a table of kernels. Pure formulas over arrays."""

from __future__ import annotations

from typing import Any

from .coefficients import Chip, Generation, Host, Shared
from .kernels import CATEGORIES, KernelTable
from .roofline import TILES, best_tiling_s, soft_max

__all__ = ["contraction_s", "device_parts_s", "launches_of", "step_s", "tile_rates"]

K_STEP = 8.0  # elements of the k loop that a tile loads at a time (CUTLASS default for fp32 SIMT kernels)
_CONTRACTIONS = 5
# cuDNN's float32 convolutions run the whole k loop of an output tile on one core, but for the gradient of the
# weights; cuBLAS splits where it helps.
_DOT = CATEGORIES.index("dot")
_FIRST_SPLITTING = CATEGORIES.index("conv_wgrad")


def tile_rates(exponent: Any) -> list[Any]:
    """Return each tile's rate relative to the largest: its arithmetic intensity to a power [-]."""
    largest = TILES[0][0] * TILES[0][1] / (TILES[0][0] + TILES[0][1])
    return [(rows * columns / (rows + columns) / largest) ** exponent for rows, columns in TILES]


def _by_category(generation: Generation, names: tuple[str, ...], category: Any, xp: Any) -> Any:
    chosen = getattr(generation, names[0])
    for code, name in enumerate(names[1:], start=1):
        chosen = xp.where(category == code, getattr(generation, name), chosen)
    return chosen


def contraction_s(table: KernelTable, chip: Chip, generation: Generation, shared: Shared, *, xp: Any) -> Any:
    """Return the arithmetic time of one launch of each contraction [s]; anything for other kernels."""
    share = _by_category(generation, CATEGORIES[:_CONTRACTIONS] + ("dot",) * 3, table.category, xp)
    gain = xp.where(table.winograd & chip.winograd, generation.winograd_gain, 1.0)
    return best_tiling_s(
        m=table.m, n=table.n, k=table.k, batch=table.batch, cores=chip.cores,
        core_flop_per_s=chip.peak_flop_per_s / chip.cores * share * gain,
        tile_rates=tile_rates(shared.tile_exponent), k_step=K_STEP, quantization=shared.quantization,
        split_cost=shared.split_cost, may_split=table.category >= _FIRST_SPLITTING,
        step_latency_s=generation.step_latency_s, xp=xp,
    )  # fmt: skip


def device_parts_s(
    table: KernelTable, chip: Chip, generation: Generation, shared: Shared, *, xp: Any
) -> tuple[Any, Any, Any]:
    """Return total time, arithmetic time and memory time of each row, all launches together [s].

    The total of a launch is the soft maximum of arithmetic and memory, plus the launch gap.
    """
    contraction = table.category < _CONTRACTIONS
    compute_s = xp.where(
        contraction,
        contraction_s(table, chip, generation, shared, xp=xp),
        table.flops / chip.vector_flop_per_s,
    )
    streams = ("stream",) * _CONTRACTIONS + ("stream", "pool", "irregular")
    bandwidth = _by_category(generation, streams, table.category, xp)
    memory_s = table.bytes_moved / (chip.memory_bytes_per_s * bandwidth)
    sharpness = xp.where(table.category == _DOT, shared.dot_sharpness, shared.sharpness)
    total_s = soft_max(compute_s, memory_s, sharpness=sharpness, xp=xp) + generation.launch_s
    return total_s * table.count, compute_s * table.count, memory_s * table.count


def launches_of(table: KernelTable, *, compiled: bool) -> float:
    """Return how often the host has to act in a step: once for a compiled program, else for every kernel."""
    return 1.0 if compiled else float(table.count.sum())


def step_s(
    *, device_s: Any, launches: Any, input_bytes: Any, host: Host, shared: Shared, xp: Any
) -> Any:  # fmt: skip
    """Return the step's wall time [s]: device work and host dispatch overlap, the rest adds.

    Args:
        device_s: Sum over the kernels [s].
        launches: Kernels per step that the host dispatches one by one [-].
        input_bytes: One batch as it comes from the host [bytes].
    """
    dispatch_s = launches * host.dispatch_s
    overlapped_s = soft_max(device_s, dispatch_s, sharpness=shared.host_sharpness, xp=xp)
    return overlapped_s + host.fixed_s + input_bytes / host.feed_bytes_per_s

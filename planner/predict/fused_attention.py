"""Time of fused attention on a GPU, from the units of a streaming multiprocessor (SM) that a kernel keeps busy.

Pure formulas on arrays. One pass of fused attention (FlashAttention, cuDNN) multiplies on tensor units, takes an
exponential of every score, and exchanges operands through shared memory; the scores never reach the memory of the
device. It is therefore slower than a matrix product of its size: 35 to 60 % of the rate on an H100.
"""

from __future__ import annotations

from typing import Any

from ..records import Frozen
from ..workload.ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS
from .coefficients import AcceleratorLimits
from .kernel_table import ATTENTION_PASSES, CATEGORIES, FUSED_KERNELS, KernelTable

# Sides of the blocks of scores that a kernel computes whole, along queries and keys (backward: keys and queries).
ROWS, COLUMNS = 128.0, 64.0
FORWARD, BACKWARD = (CATEGORIES.index(name) for name in ATTENTION_PASSES)
# An SM has 16 special function units, which compute exponentials, since compute capability 5 (CUDA C++ Programming
# Guide, "Arithmetic Instructions": throughput of native instructions), and reads 128 bytes a clock from shared
# memory (ibid., "Shared Memory", 32 banks of 4 bytes).
EXPONENTIALS_PER_CLOCK = 16.0
SHARED_BYTES_PER_CLOCK = 128.0
# How much longer than FlashAttention-2 the first FlashAttention takes in Triton of 2022, on an A100: "around
# 1.3-1.5x" and "around 2x" (Dao, 2023, "FlashAttention-2", arXiv:2307.08691, section 4.1).
TRITON_FORWARD, TRITON_BACKWARD = 1.4, 2.0
_WARPGROUP, _TRITON = (FUSED_KERNELS.index(name) for name in ("warpgroup", "triton"))


class AttentionCoefficients(Frozen):
    """Constants of fused attention, the same on every chip.

    Fitted on the kernels in profiles/attention_kernels.csv by `python benchmarks/attention_kernels.py`.
    """

    # share of the tensor units' peak where no share of large products is published [-]
    tensor_share: float = 0.924
    # forward_instructions, backward_instructions: on scalar units, a score [-]
    forward_instructions: float = 3.52
    backward_instructions: float = 5.96
    forward_bytes: float = 0.342  # read from shared memory, a score and feature of a head [bytes]
    backward_bytes: float = 0.948  # the same of the backward pass, which exchanges gradients too [bytes]
    backward_score_bytes: float = 8.26  # the same, a score whatever the head's size [bytes]
    warp_sharpness: float = 2.75  # order of the p-norm by which the times of the units overlap; see `soft_max` [-]
    group_sharpness: float = 4.53  # the same where warpgroups multiply, asynchronously [-]
    # forward_start_clocks, backward_start_clocks: start and end of a block of queries (backward: keys) [clocks]
    forward_start_clocks: float = 3920.0
    backward_start_clocks: float = 22400.0


ATTENTION = AttentionCoefficients()


def compute_attention_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    *,
    clock: Any,
    xp: Any,
    coefficients: AttentionCoefficients = ATTENTION,
) -> Any:
    """Return the time of one launch of each attention kernel without memory traffic [s], array of [kernels].

    A kernel computes blocks of `ROWS` x `COLUMNS` scores, those at the border whole. For one score of a head of H
    features, an SM needs on each unit, in clocks,

        tensor units     2 p H / F             p = 2 products forward, 5 backward; F FLOP per clock
        exponentials     1 / 16
        scalar units     i / L                 i instructions on L lanes
        shared memory    (b H + b0) / 128 g    b and b0 bytes; g: `warpgroup_sharing`

    and together the p-norm of the four. A row of blocks takes its scores times that, and a start. The SMs take one
    row of blocks at a time, and the last wave of them as long as a full one. Triton's kernel of 2022 takes as much
    longer as was published on an A100.

    238 published kernels of NVIDIA's chips from Ampere to Blackwell differ by 10 % in the mean, and by 6 to 26 %
    where their chip was left out of the fit (`python benchmarks/attention_kernels.py`). On an A100,
    FlashAttention-2 is faster than cuDNN, 1.15 times forward and 1.27 backward, which is not modelled. Older chips
    are extrapolated. Heads of 32 to 256 features and sequences from 512 tokens on were measured.

    Args:
        table: Kernels; rows that are not fused attention give numbers without meaning.
        chip: Limits of a GPU with a known clock.
        clock: Clock under load relative to the boost clock [-].
    """
    own = coefficients
    backward = table.category == BACKWARD
    products = xp.where(backward, BACKWARD_PRODUCTS, FORWARD_PRODUCTS)
    # m and k / products are the lengths on both sides of the scores; a causal kernel computes a share of the rest.
    rows = xp.maximum(table.m, 1)
    across = xp.maximum(table.k / products, 1.0)
    scores = ROWS * COLUMNS * xp.ceil(across / COLUMNS)  # of a row of blocks
    clocks_per_s = chip.sm_clocks_per_s * clock / chip.cores  # of one SM
    limit = xp.where(chip.matmul_share > 0, chip.matmul_share, own.tensor_share * clock)
    grouped = (table.attention_kernel == _WARPGROUP) & (chip.warp_mma_share < 1.0)
    limit = xp.where(grouped, limit, xp.minimum(limit, chip.warp_mma_share * clock))
    flop_per_clock = chip.peak_flop_per_s * limit / chip.cores / clocks_per_s
    lanes = chip.vector_flop_per_s / 2.0 / chip.sm_clocks_per_s
    instructions = xp.where(backward, own.backward_instructions, own.forward_instructions)
    shared_bytes = xp.where(
        backward, own.backward_bytes * table.n + own.backward_score_bytes, own.forward_bytes * table.n
    )
    # A warpgroup's instruction reads an operand for more rows of scores than a warp's does.
    sharing = xp.where(grouped, chip.warpgroup_sharing, 1.0)
    clocks = (
        2.0 * products * table.n / flop_per_clock,
        1.0 / EXPONENTIALS_PER_CLOCK,
        instructions / lanes,
        shared_bytes / SHARED_BYTES_PER_CLOCK / sharing,
    )
    sharpness = xp.where(grouped, own.group_sharpness, own.warp_sharpness)
    score_clocks = sum(part**sharpness for part in clocks) ** (1.0 / sharpness)
    start_clocks = xp.where(backward, own.backward_start_clocks, own.forward_start_clocks)
    waves = xp.ceil(table.batch * xp.ceil(rows / ROWS) / chip.cores)
    slower = xp.where(backward, TRITON_BACKWARD, TRITON_FORWARD)
    factor = xp.where(table.attention_kernel == _TRITON, slower, 1.0)
    return waves * (scores * score_clocks + start_clocks) * factor / clocks_per_s

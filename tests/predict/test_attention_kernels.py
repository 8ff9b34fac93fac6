"""Fused attention as a kernel: published rates, the fit of its constants, and limits of chips by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.fused_attention import ATTENTION, compute_attention_s
from gpuplan.predict.kernel_table import ATTENTION_PASSES, FusedKernel, Kernel, build_kernel_table
from gpuplan.predict.library_kernels import find_attention_kernel
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.step_time import NoPrediction

from lab.attention_fit import AttentionKernel, predict_attention_s

ACCELERATORS = load_catalog().accelerators
ONE = AttentionKernel(
    accelerator="A100-80GB", kernel="FlashAttention-2", backward=False, head_size=64, causal=False,
    batch=16, heads=16, length=2048, flop_per_s=1e12, source="",
)  # fmt: skip


def predict_s(**changes: object) -> float:
    """Return the modelled time of one kernel [s]."""
    return float(predict_attention_s([replace(ONE, **changes)], ACCELERATORS, ATTENTION)[0])  # type: ignore[arg-type]


def test_triton_takes_longer_by_what_was_published() -> None:
    """FlashAttention-2's paper, section 4.1: 1.3 to 1.5 times forward, and around twice as long backward."""
    passes = [
        Kernel(
            category=name, dtype="float16", count=1, flops=1e9, bytes_moved=1e6, m=2048, n=64, k=4096, batch=256
        )
        for name in ATTENTION_PASSES
    ]

    def time_s(kernel: FusedKernel) -> np.ndarray:
        table = build_kernel_table(passes, attention_kernel=kernel)
        chip = compute_limits(ACCELERATORS["A100-80GB"], table=table, precision="mixed_float16")
        assert not isinstance(chip, NoPrediction)
        return np.asarray(compute_attention_s(table, chip, clock=1.0, xp=np))

    assert time_s("triton") / time_s("warp") == pytest.approx([1.4, 2.0])


def test_rows_of_llm_foundry_ran_triton() -> None:
    rows = [m for m in load_published_measurements() if m.collection == "llm_foundry_language"]
    assert {find_attention_kernel(m) for m in rows} == {"triton"}
    assert all(m.has_fused_attention for m in rows)


def test_warpgroups_make_a_difference_on_hopper_alone() -> None:
    """An A100 has no instructions of warpgroups, so both kernels are one to the model."""
    on_hopper = [predict_s(accelerator="H100-SXM", kernel=one) for one in ("FlashAttention-2", "cuDNN")]
    on_ampere = [predict_s(kernel=one) for one in ("FlashAttention-2", "cuDNN")]

    assert on_hopper[0] > 1.15 * on_hopper[1]
    assert on_ampere[0] == on_ampere[1]


def test_blocks_at_the_border_are_computed_whole() -> None:
    """197 queries and keys take 2 blocks of 128 queries by 4 of 64 keys, as 256 do; their arrays are smaller."""
    assert predict_s(length=197) == pytest.approx(predict_s(length=256), rel=0.05)
    assert predict_s(length=257) > 1.3 * predict_s(length=256)


def test_the_last_wave_takes_as_long_as_a_full_one() -> None:
    """108 rows of blocks fill an A100 once, 109 twice; seven more fit into the second wave."""
    once, twice, still = (predict_s(batch=1, heads=heads, length=128) for heads in (108, 109, 116))

    assert twice == pytest.approx(2 * once, rel=0.2)
    assert still == pytest.approx(twice, rel=0.02)


def test_long_sequences_take_time_with_the_square_of_their_length() -> None:
    """Starts and borders matter for short ones only."""
    assert predict_s(length=16384, backward=True) == pytest.approx(
        16 * predict_s(length=4096, backward=True), rel=0.1
    )

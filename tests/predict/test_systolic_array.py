"""Steps on TPUs: padding to the arrays, and one copy of the weights for each core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.coefficients import AcceleratorLimits
from gpuplan.predict.executed_ops import Execution, count_variables, repeat_updates
from gpuplan.predict.kernel_table import Kernel, KernelTable, build_kernel_table
from gpuplan.predict.systolic_array import ATTENTION_SHARE, USUAL_PRODUCT_SHARE, padded_flops, systolic_parts_s
from gpuplan.workload.ops import Op, OpKind


def kernel(m: int, n: int, k: int, *, category: str = "dot") -> Kernel:
    return Kernel(
        category=category,
        dtype="bfloat16",
        count=1.0,
        flops=2.0 * m * n * k,
        m=m,
        n=n,
        k=k,
        bytes_moved=2.0 * (m * k + k * n + m * n),
    )


def product(m: int, n: int, k: int, *, category: str = "dot") -> KernelTable:
    return build_kernel_table([kernel(m, n, k, category=category)])


def chip(name: str, table: KernelTable) -> AcceleratorLimits:
    found = compute_limits(load_catalog().accelerators[name], table=table, precision="mixed_bfloat16")
    assert isinstance(found, AcceleratorLimits)
    return found


@pytest.mark.parametrize(
    ("m", "n", "k", "lanes", "times"),
    [
        (1024, 128, 256, 128, 1.0),  # fills the array
        (1024, 64, 64, 128, 2.0),  # half of the rows hold nothing; 64 columns stream instead of the 1024
        (1024, 1024, 3, 128, 128 / 3),  # the first convolution of a network for photos
        (8, 128, 128, 128, 1.0),  # a few rows stream through a full array
        (1024, 128, 128, 256, 2.0),  # a larger array, half full
    ],
)
def test_products_pay_for_what_they_leave_empty(m: int, n: int, k: int, lanes: int, times: float) -> None:
    """By hand: the contracted side is always padded, the other side only where streaming it costs more."""
    assert padded_flops(m=m, n=n, k=k, batch=1, lanes=lanes, xp=np) / (2 * m * n * k) == pytest.approx(times)


def test_a_large_product_runs_at_the_datasheets_peak_and_a_copy_at_its_bandwidth() -> None:
    """8192 cubed at 123 TFLOP/s; 900 MB at 900 GB/s."""
    table = product(8192, 8192, 8192)
    total, compute, _ = systolic_parts_s(table, chip("TPU-v3", table), xp=np)
    assert compute[0] == pytest.approx(2 * 8192**3 / 123e12)
    assert total[0] == pytest.approx(compute[0], rel=0.01)
    copy = build_kernel_table(
        [Kernel(category="stream", dtype="bfloat16", count=2.0, flops=0.0, bytes_moved=0.9e9)]
    )
    total, _, memory = systolic_parts_s(copy, chip("TPU-v3", copy), xp=np)
    assert memory[0] == pytest.approx(2e-3)
    assert total[0] == pytest.approx(2e-3)


def test_newer_arrays_are_wider() -> None:
    """A v6e has arrays of 256 x 256: small products leave more of them empty than of a v5e's."""
    small = product(4096, 128, 128)

    def padded(name: str) -> float:
        limits = chip(name, small)
        share_s = systolic_parts_s(small, limits, xp=np)[1][0]
        return float(share_s * limits.peak_flop_per_s[0] * limits.matmul_share)

    assert padded("TPU-v6e") / padded("TPU-v5e") == pytest.approx(2.0)


def test_products_reach_the_share_of_their_chip_and_fused_attention_one_of_its_own() -> None:
    """8192 cubed on a v6e; a chip without published steps has the mean; 2 x 1e12 FLOP of attention."""
    table = product(8192, 8192, 8192)
    for name, share in (("TPU-v6e", 0.614), ("TPU-v4", USUAL_PRODUCT_SHARE)):
        limits = chip(name, table)
        _, compute, _ = systolic_parts_s(table, limits, xp=np)
        assert compute[0] == pytest.approx(2 * 8192**3 / (share * limits.peak_flop_per_s[0]))
    fused = product(8192, 8192, 8192, category="attention_fprop")
    limits = chip("TPU-v6e", fused)
    _, compute, _ = systolic_parts_s(fused, limits, xp=np)
    assert compute[0] == pytest.approx(2 * 8192**3 / (ATTENTION_SHARE * 918e12))


@pytest.mark.parametrize(("name", "copies"), [("TPU-v2", 2), ("TPU-v7", 2), ("TPU-v4", 1), ("A100-40GB", 1)])
def test_each_core_of_a_chip_updates_its_own_weights(name: str, copies: int) -> None:
    """The forward pass shares the batch, the update is done once a core, of all cores by one dispatch."""
    ops = tuple(
        Op(
            kind=OpKind.ELEMENTWISE,
            name="add",
            phase=phase,
            layer="",
            dtype="float32",
            fused_bytes_read=8.0,
            fused_group=number,
            layer_group=number,
        )
        for number, phase in enumerate(("forward", "update"))
    )
    cores = load_catalog().accelerators[name].cores_per_chip
    kernels = Execution(compiled=True).build_kernels(repeat_updates(ops, cores=cores))
    moved = sum(k.bytes_moved * k.count for k in kernels)
    assert moved == 8.0 + 8.0 * copies
    assert sum(k.count for k in kernels) == 2.0


def test_variables_are_counted_by_group_and_never_none() -> None:
    """By hand: a group of two equal ones and a group of one are three; one is one, and so is no update at all."""
    add = Op(kind=OpKind.ELEMENTWISE, name="add", phase="update", layer="", dtype="float32")
    several = [replace(add, layer_group=0, count=2.0), replace(add, layer_group=0), replace(add, layer_group=1)]

    assert [count_variables(ops) for ops in (several, several[2:], [replace(add, phase="forward")])] == [3, 1, 1]


def test_fused_attention_of_v6e_runs_at_its_fitted_share_of_the_peak() -> None:
    """0.379 of 918 TFLOP/s is 347.9: 2 x 10240 cubed, which fills the array, takes 6.172 ms."""
    fused = product(10240, 10240, 10240, category="attention_fprop")
    _, compute, _ = systolic_parts_s(fused, chip("TPU-v6e", fused), xp=np)

    assert compute[0] == pytest.approx(6.172e-3, rel=1e-3)

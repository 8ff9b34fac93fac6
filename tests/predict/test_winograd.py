"""Transforms of Winograd's and Fourier's algorithms: what is turned, at what rate, and where nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.coefficients import AcceleratorLimits, load_coefficients
from gpuplan.predict.kernel_table import Kernel, KernelTable, build_kernel_table
from gpuplan.predict.kernel_times import compute_bound_s
from gpuplan.predict.roofline import transforms_s
from gpuplan.predict.step_time import NoPrediction

from lab.kernel_store import load_store

ACCELERATORS = load_catalog().accelerators
VOLTA = replace(load_coefficients().generations["Volta"], filter_passes=10.0, array_passes=2.0)
PIXELS, CHANNELS, FILTERS = 64 * 56 * 56, 128, 256
ACROSS = 9 * CHANNELS
CONVOLUTION = Kernel(
    category="conv_fprop",
    dtype="float32",
    count=1,
    flops=2.0 * PIXELS * FILTERS * ACROSS,
    bytes_moved=3e8,
    m=PIXELS,
    n=FILTERS,
    k=ACROSS,
    winograd=True,
)
OF_WEIGHTS = CONVOLUTION._replace(category="conv_wgrad", m=ACROSS, k=PIXELS)
BANDWIDTH_BYTES_PER_S = 700e9


def board(name: str, table: KernelTable, precision: str = "float32") -> AcceleratorLimits:
    chip = compute_limits(ACCELERATORS[name], table=table, precision=precision)
    assert not isinstance(chip, NoPrediction)
    return chip


def found_s(*kernels: Kernel, name: str = "V100-16GB", precision: str = "float32", clock: float = 1.0) -> Any:
    table = build_kernel_table(kernels)
    return transforms_s(
        table,
        board(name, table, precision),
        VOLTA,
        bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
        clock=clock,
        xp=np,
    )


def test_by_hand() -> None:
    """Ten passes over 9 x 128 x 256 weights of 4 bytes at a V100's datasheet rate, two over the arrays: whichever
    pass of the convolution it is, as the weights are one operand, or what comes out."""
    by_hand_s = 10 * 9 * 128 * 256 * 4 / 900e9 + 2 * 3e8 / 700e9
    assert found_s(CONVOLUTION, OF_WEIGHTS).tolist() == pytest.approx([by_hand_s, by_hand_s], rel=1e-3)


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        (CONVOLUTION._replace(winograd=False), "float32"),
        (CONVOLUTION._replace(dtype="float16"), "mixed_float16"),
        (CONVOLUTION._replace(category="dot", winograd=False), "mixed_float16"),
    ],
)
def test_nothing_is_turned_elsewhere(kernel: Kernel, precision: str) -> None:
    """Where the algorithm does not apply, or operands are not float32."""
    assert found_s(kernel, precision=precision).tolist() == [0.0]


def test_tensor_units_have_no_transforms() -> None:
    """An A100 turns filters of float32 on scalar units; with TF32 it multiplies as it is."""
    assert found_s(CONVOLUTION, name="A100-40GB")[0] > 0
    assert found_s(CONVOLUTION, name="A100-40GB", precision="tf32").tolist() == [0.0]


def test_filters_go_with_cores_and_clock_and_arrays_with_bandwidth() -> None:
    """A V100 has 80 SMs at 1,530 MHz, half a K80 13 at 875: 10.8 times as many clocks, 3.75 times the rate."""
    filters = CONVOLUTION._replace(bytes_moved=0.0)
    k80, v100 = (float(found_s(filters, name=name)[0]) for name in ("K80", "V100-16GB"))
    of = {name: ACCELERATORS[name] for name in ("K80", "V100-16GB")}
    clocks = [(chip.sms_or_cores or 0) * (chip.boost_mhz or 0) for chip in of.values()]
    assert k80 / v100 == pytest.approx(clocks[1] / clocks[0])
    assert found_s(filters, clock=0.5)[0] == pytest.approx(2 * v100)
    arrays_s = found_s(CONVOLUTION)[0] - v100
    assert found_s(CONVOLUTION, clock=0.5)[0] - 2 * v100 == pytest.approx(arrays_s)


def test_filters_of_three_and_of_five_have_winograd() -> None:
    """AlexNet's second layer has 5x5 filters, the three after it 3x3; its first has 11x11, four pixels apart."""
    runs = load_store()
    alexnet = next(runs[key] for key in sorted(runs) if "alexnet_tf_benchmarks" in key and " train " in key)
    allowed = {int(k.k): k.winograd for k in alexnet.kernels if k.category == "conv_fprop"}

    assert allowed == {3 * 11**2: False, 64 * 5**2: True, 192 * 3**2: True, 384 * 3**2: True}


def test_no_step_is_shorter_than_its_products_at_the_peak() -> None:
    """Three launches of 2 x 10^12 FLOP at a V100's 15.7 TFLOP/s; a quarter of them by Winograd's algorithms."""
    one = Kernel(category="dot", dtype="float32", flops=2e12, bytes_moved=1e6, m=10**4, n=10**4, k=10**4)
    plain = build_kernel_table([one._replace(count=3.0)])
    reduced = build_kernel_table([CONVOLUTION._replace(flops=2e12, count=3.0)])

    assert one.count == 1.0
    assert compute_bound_s(plain, board("V100-16GB", plain)) == pytest.approx(6e12 / 15.7e12)
    assert compute_bound_s(reduced, board("V100-16GB", reduced)) == pytest.approx(1.5e12 / 15.7e12)

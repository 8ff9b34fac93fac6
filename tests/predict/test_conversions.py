"""Channels first on tensor units: what cuDNN converts, and where nothing is converted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits, tensor_dtypes
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.executed_ops import find_keras_execution
from gpuplan.predict.kernel_table import CATEGORIES, Kernel, build_kernel_table
from gpuplan.predict.kernel_times import compute_kernel_parts_s
from gpuplan.predict.library_kernels import find_converted_dtypes, find_xla_converted_dtypes
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.step_time import NoPrediction

from lab.dataset import build_samples, read_published_file
from lab.kernel_store import load_store

ACCELERATORS = load_catalog().accelerators
CONVOLUTION = Kernel(
    category="conv_fprop",
    dtype="float32",
    count=2,
    flops=2.0 * 4096**3,
    bytes_moved=12.0 * 4096**2,
    m=4096,
    n=4096,
    k=4096,
)
POINTWISE = CONVOLUTION._replace(flops=2.0 * 2**20 * 32 * 32, bytes_moved=8.0 * 2**20 * 32, m=2**20, n=32, k=32)
FLOAT32 = frozenset({"float32"})
DEPTHWISE = CONVOLUTION._replace(category="depthwise")
PRODUCT = CONVOLUTION._replace(category="dot")
ARRAY = Kernel(category="stream", dtype="float32", count=6, flops=0.0, bytes_moved=2 * CONVOLUTION.bytes_moved / 3)


def parts_s(
    kernels: Iterable[Kernel], precision: str = "tf32", converted: Collection[str] = ()
) -> tuple[Any, Any, Any]:
    """Return total, arithmetic and memory time of each kernel in Keras on an A100 [s]."""
    table, board = build_kernel_table(kernels, converted=converted), ACCELERATORS["A100-40GB"]
    chip, found = compute_limits(board, table=table, precision=precision), load_coefficients()
    assert not isinstance(chip, NoPrediction)
    return compute_kernel_parts_s(
        table, chip, found.generations["Ampere"], found.stacks["tensorflow2 keras"], found.shared, xp=np
    )


def test_convolutions_alone_are_converted() -> None:
    """Of the types that tensor units multiply; nothing else about them changes."""
    kernels = (CONVOLUTION, DEPTHWISE, PRODUCT)
    plain, marked, other = (build_kernel_table(kernels, converted=dtypes) for dtypes in ((), FLOAT32, {"float16"}))

    assert marked.converted.tolist() == [True, False, False]
    assert other.converted.tolist() == plain.converted.tolist() == [False, False, False]
    for name in ("category", "operand", "count", "flops", "bytes_moved", "m", "n", "k", "batch", "winograd"):
        assert getattr(marked, name).tolist() == getattr(plain, name).tolist()


def test_every_array_of_a_convolution_is_read_and_written_once_more() -> None:
    """Two operands and a result, in both of its launches: as six kernels that copy one array each."""
    (converted_s,), *_ = parts_s([CONVOLUTION], converted=FLOAT32)
    (plain_s, arrays_s), *_ = parts_s([CONVOLUTION, ARRAY])

    assert converted_s == pytest.approx(plain_s + arrays_s)
    assert converted_s < parts_s([CONVOLUTION], "float32")[0][0]


def test_scalar_units_take_channels_first_where_that_is_faster() -> None:
    """Little arithmetic on large arrays: as if there were no TF32, its neighbours untouched."""
    kernels = [PRODUCT, POINTWISE, CONVOLUTION._replace(dtype="float16")]
    total_s, arithmetic_s, _ = parts_s(kernels, converted=FLOAT32)
    scalar_s, its_arithmetic_s, _ = parts_s([POINTWISE], "float32")
    plain_s, *_ = parts_s(kernels)

    assert (total_s[1], arithmetic_s[1]) == (pytest.approx(scalar_s[0]), pytest.approx(its_arithmetic_s[0]))
    assert total_s[1] > plain_s[1]
    assert (total_s[0], total_s[2]) == (plain_s[0], plain_s[2])


def test_winograd_competes_with_tensor_units() -> None:
    """The way over scalar units has Winograd's algorithm where it applies."""
    deep = POINTWISE._replace(k=2304, flops=2.0 * 2**20 * 32 * 2304)
    plain_s, by_winograd_s = (parts_s([deep._replace(winograd=w)], "float32")[0][0] for w in (False, True))
    both_s, without_s = (parts_s([deep._replace(winograd=w)], converted=FLOAT32)[0][0] for w in (True, False))

    assert by_winograd_s < plain_s
    assert both_s <= without_s
    # nothing to convert: tensor units are the faster ones, and take what they take without the choice
    assert parts_s([deep._replace(winograd=True)])[0][0] == pytest.approx(parts_s([deep])[0][0])


def test_tf32_is_never_slower_than_float32() -> None:
    """Every published training step of XLA that was traced in float32, on an A100: libraries may take either."""
    runs = [t for key, t in load_store().items() if " train float32 xla " in key and " on " not in key]
    assert len(runs) > 40
    for run in runs:
        tf32_s, float32_s = parts_s(run.kernels, converted=FLOAT32)[0], parts_s(run.kernels, "float32")[0]
        assert tf32_s.sum() <= 1.001 * float32_s.sum()


@pytest.mark.parametrize(
    ("name", "precision", "dtypes"),
    [
        ("P100-PCIe", "mixed_float16", set()),
        ("V100-16GB", "mixed_float16", {"float16"}),
        ("A100-40GB", "float32", {"float16", "bfloat16"}),
        ("A100-40GB", "tf32", {"float16", "bfloat16", "float32"}),
    ],
)
def test_which_types_tensor_units_multiply(name: str, precision: str, dtypes: set[str]) -> None:
    """None before Volta, bfloat16 and float32 (as TF32) from Ampere on."""
    assert tensor_dtypes(ACCELERATORS[name], precision=precision) == dtypes


@pytest.fixture(scope="module")
def pair() -> tuple[Measurement, Measurement]:
    """timm's ResNet-50 on an RTX 3090 with channels first and last."""
    rows = [m for m in read_published_file("timm_train_rtx3090") if m.architecture.startswith("resnet50")]
    by_layout = {m.layout: m for m in rows}
    return by_layout["nchw"], by_layout["nhwc"]


def test_a_framework_keeps_the_layout_that_it_is_given(pair: tuple[Measurement, Measurement]) -> None:
    """Where nothing was published, nothing is assumed."""
    first, last = pair
    board = ACCELERATORS[first.accelerator]

    assert find_converted_dtypes(first, board) == {"float16", "bfloat16"}
    assert not find_converted_dtypes(last, board)
    assert not find_converted_dtypes(replace(first, compiled=True), board)
    assert find_converted_dtypes(replace(first, framework="mxnet"), board)
    assert not find_converted_dtypes(replace(first, layout="unknown"), board)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "unknown"])
def test_tensorflow_and_xla_lay_float32_channels_first(
    pair: tuple[Measurement, Measurement], layout: str, *, compiled: bool
) -> None:
    """Whatever a script asks for: 16-bit convolutions get channels last, those in TF32 are converted."""
    run = replace(pair[0], framework="tensorflow2", layout=layout, compiled=compiled)
    ampere = ACCELERATORS["A100-40GB"]

    assert find_converted_dtypes(replace(run, precision="tf32"), ampere) == {"float32"}
    assert not find_converted_dtypes(replace(run, precision="float32"), ampere)
    assert not find_converted_dtypes(replace(run, precision="mixed_float16"), ampere)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("V100-16GB", set()),
        ("A100-40GB", {"float32"}),
        ("L4", {"float32"}),
        ("H100-SXM", set()),
        ("MI300X", set()),
        ("TPU-v3", set()),
    ],
)
def test_xla_lays_channels_last_from_hopper_on(name: str, dtypes: set[str]) -> None:
    """TF32 begins with Ampere; a TPU has no cuDNN."""
    assert find_xla_converted_dtypes(ACCELERATORS[name], precision="tf32") == dtypes
    for compiled in (True, False):
        workload = replace(make_workload(), precision="tf32", compiled=compiled)
        assert find_keras_execution(workload, ACCELERATORS[name]).converted == dtypes
        on_torch = replace(workload, versions={**workload.versions, "torch": "2.13.0"})
        assert not find_keras_execution(on_torch, ACCELERATORS[name]).converted


def test_an_example_with_channels_first_is_marked(pair: tuple[Measurement, Measurement]) -> None:
    """At one batch size convolutions and products are those of channels last, but for what has to be converted;
    batch normalization reads its arrays twice."""
    first, last = (replace(m, batch_size=pair[1].batch_size) for m in pair)
    converted, plain = (
        e.fit_sample.table for e in build_samples([first, last], ACCELERATORS, progress=lambda _: None)
    )

    convolutions = converted.category < CATEGORIES.index("depthwise")
    half = np.array([one.dtype == "float16" for one in converted.operands])[converted.operand]
    assert converted.converted.tolist() == (convolutions & half).tolist()
    assert not plain.converted.any()
    products = slice(plain.contractions)
    assert converted.bytes_moved[products].tolist() == plain.bytes_moved[products].tolist()
    assert converted.count.sum() == plain.count.sum()
    moved, moved_last = ((table.bytes_moved * table.count).sum() for table in (converted, plain))
    assert moved_last < moved < 1.2 * moved_last

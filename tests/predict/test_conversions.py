"""Channels first on tensor units: what cuDNN converts, and where nothing is converted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpuplan.offers.load import load_catalog
from gpuplan.predict.cases import examples_of
from gpuplan.predict.chip import tensor_dtypes
from gpuplan.predict.corpus import Measurement, collection
from gpuplan.predict.kernels import Kernel, with_conversions
from gpuplan.predict.runs import converts_layouts

ACCELERATORS = load_catalog().accelerators
CONVOLUTION = Kernel(
    category="conv_fprop", dtype="float16", count=2, flops=1e9, bytes_moved=6e6, m=64, n=64, k=64
)
DEPTHWISE = replace(CONVOLUTION, category="depthwise")
PRODUCT = replace(CONVOLUTION, category="dot")


def test_every_array_of_a_convolution_is_read_and_written_once_more() -> None:
    """Two operands and a result, in both of its launches: six kernels, and twice its bytes together."""
    kernels = with_conversions([CONVOLUTION, DEPTHWISE, PRODUCT], dtypes={"float16"})

    assert kernels[:3] == (CONVOLUTION, DEPTHWISE, PRODUCT)
    (added,) = kernels[3:]
    assert (added.category, added.count, added.streamed) == ("stream", 6, True)
    assert added.count * added.bytes_moved == pytest.approx(2 * CONVOLUTION.count * CONVOLUTION.bytes_moved)


def test_scalar_units_take_channels_first_as_they_come() -> None:
    """Nothing is converted for types that no tensor unit multiplies."""
    assert with_conversions([CONVOLUTION], dtypes=frozenset()) == (CONVOLUTION,)


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
    rows = [m for m in collection("timm_train_rtx3090") if m.architecture.startswith("resnet50")]
    by_layout = {m.layout: m for m in rows}
    return by_layout["nchw"], by_layout["nhwc"]


def test_pytorch_alone_keeps_channels_first(pair: tuple[Measurement, Measurement]) -> None:
    """XLA and TensorFlow lay arrays out by themselves; where nothing was published, nothing is assumed."""
    first, last = pair

    assert converts_layouts(first)
    assert not converts_layouts(last)
    assert not converts_layouts(replace(first, compiled=True))
    assert not converts_layouts(replace(first, framework="tensorflow2"))
    assert not converts_layouts(replace(first, layout="unknown"))


def test_an_example_with_channels_first_moves_more(pair: tuple[Measurement, Measurement]) -> None:
    """At one batch size, each of all kernels of channels last is there, and conversions beside them."""
    first, last = (replace(m, batch_size=pair[1].batch_size) for m in pair)
    converted, plain = (
        e.case.table for e in examples_of([first, last], ACCELERATORS, progress=lambda _: None)
    )

    def moved(table: object, rows: slice = slice(None)) -> float:
        return float(np.sum((table.count * table.bytes_moved)[rows]))  # type: ignore[attr-defined]

    convolutions = slice(0, plain.contractions)
    assert converted.contractions == plain.contractions
    assert moved(converted) - moved(plain) == pytest.approx(2 * (moved(plain, convolutions) - _others(plain)))


def _others(table: object) -> float:
    """Return what products that are no convolutions of tensor units move [bytes]."""
    kept = np.asarray(table.category) < 3  # type: ignore[attr-defined]
    half = np.asarray([dtype == "float16" for dtype in table.dtypes])[table.dtype]  # type: ignore[attr-defined]
    other = ~(kept & half)[: table.contractions]  # type: ignore[attr-defined]
    moved = (table.count * table.bytes_moved)[: table.contractions]  # type: ignore[attr-defined]
    return float(np.sum(moved[other]))

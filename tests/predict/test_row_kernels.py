"""Softmax and layer normalization in one kernel, where rows stay on the chip, and in several; biases."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from factories import make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.executed_ops import Execution, find_keras_execution
from gpuplan.predict.library_kernels import has_row_kernels
from gpuplan.predict.measured_run import build_traced_run
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.resize import interpolate_workload
from gpuplan.workload.capture.load import trace_keras_model
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

os.environ.setdefault("KERAS_BACKEND", "jax")

ROWS = 512
CHIPS = load_catalog().accelerators


@cache
def softmax(columns: int = 1024) -> Workload:
    """Trace softmax between two ReLUs, in inference."""
    import keras

    inputs = keras.Input((columns,))
    hidden = keras.layers.Activation("softmax")(keras.layers.ReLU()(inputs))
    model = keras.Model(inputs, keras.layers.ReLU()(hidden))
    return trace_keras_model(model, options=WorkloadOptions(batch_size=ROWS, mode="infer"))


def launches(workload: Workload, accelerator: str) -> float:
    kernels = find_keras_execution(workload, CHIPS[accelerator]).build_kernels(workload.ops)
    return sum(kernel.count for kernel in kernels)


def arrays_moved(workload: Workload, columns: int = 1024, *, accelerator: str) -> float:
    """Return the traffic of a step on an accelerator in arrays of rows x columns."""
    kernels = find_keras_execution(workload, CHIPS[accelerator]).build_kernels(workload.ops)
    return sum(kernel.bytes_moved * kernel.count for kernel in kernels) / (4 * ROWS * columns)


def test_xla_reads_each_row_once_since_ampere() -> None:
    """By hand: three kernels read the input for the largest, the sum and the result; one kernel reads it once."""
    assert arrays_moved(softmax(), accelerator="V100-16GB") == pytest.approx(3 + 1, rel=0.01)
    assert arrays_moved(softmax(), accelerator="A100-40GB") == pytest.approx(1 + 1, rel=0.01)
    assert [launches(softmax(), name) for name in ("V100-16GB", "A100-40GB")] == [3, 1]


def test_rows_of_more_than_16384_elements_are_read_three_times() -> None:
    """As compiled for an A100: one kernel with 16,384 columns, three with 20,000."""
    for columns, arrays in ((16384, 2), (20000, 4)):
        moved = arrays_moved(softmax(columns), columns, accelerator="A100-40GB")
        assert moved == pytest.approx(arrays, rel=0.01)


@pytest.mark.parametrize(
    ("backend", "arrays", "kernels"),
    [("tensorflow", 2 + 4 + 2, 5), ("jax", 2 + 4 + 2, 5), ("torch", 2 + 3 + 2, 3)],
)
def test_tensorflow_finds_the_largest_in_a_kernel_of_its_own(backend: str, arrays: int, kernels: int) -> None:
    """By hand: both ReLUs read and write an array; softmax reads three times and writes, PyTorch's reads twice."""
    versions = {"keras": "3.15.1", "jax": "0.10", backend: "2"}
    workload = replace(softmax(), versions=versions, compiled=False)
    assert arrays_moved(workload, accelerator="A100-40GB") == pytest.approx(arrays, rel=0.01)
    assert launches(workload, "A100-40GB") == kernels


@cache
def norm_between_products() -> Workload:
    """Trace a product with a bias, layer normalization, and a product with a bias and ReLU, in inference."""
    import keras

    inputs = keras.Input((1024,))
    hidden = keras.layers.LayerNormalization()(keras.layers.Dense(1024)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1024, activation="relu")(hidden))
    return trace_keras_model(model, options=WorkloadOptions(batch_size=ROWS, mode="infer"))


@pytest.mark.parametrize(
    ("backend", "compiled", "arrays"),
    [
        ("jax", True, [1, 2, 1, 2]),  # the bias with the mean, the variance, the result; bias and ReLU
        ("torch", True, [2, 2]),  # all of the normalization, and bias and ReLU: `addmm` adds the first bias
        ("torch", False, [2, 3, 2]),  # bias, normalization, bias and ReLU: each layer call
    ],
)
def test_inductor_normalizes_rows_in_one_kernel_and_leaves_biases_to_products(
    backend: str, *, compiled: bool, arrays: list[int]
) -> None:
    """By hand, in arrays of rows x columns read and written by the kernels that are no products."""
    versions = {"keras": "3.15.1", "jax": "0.10", backend: "2.13"}
    workload = replace(norm_between_products(), versions=versions, compiled=compiled)
    kernels = find_keras_execution(workload, CHIPS["A100-40GB"]).build_kernels(workload.ops)

    streams = [kernel.bytes_moved / (4 * ROWS * 1024) for kernel in kernels if kernel.category == "stream"]
    assert sorted(streams) == pytest.approx(sorted(arrays), rel=0.01)


def list_streams(model: object, batch_size: int, precision: str = "float32") -> list[float]:
    """Return the bytes of the kernels of inference by TorchInductor that are no products."""
    options = WorkloadOptions(batch_size=batch_size, mode="infer", precision=precision)
    workload = replace(trace_keras_model(model, options=options), versions={"keras": "3.15.1", "torch": "2.13"})
    kernels = find_keras_execution(workload, CHIPS["A100-40GB"]).build_kernels(workload.ops)
    return [kernel.bytes_moved for kernel in kernels if kernel.category == "stream"]


def test_a_residual_within_a_layer_is_no_bias() -> None:
    """By hand, for 64 samples: the sum reads two arrays and writes one, of 64 x 256 numbers."""
    import keras

    class Residual(keras.layers.Layer):
        def build(self, shape: tuple[int, ...]) -> None:
            self.w = self.add_weight(shape=(shape[-1], shape[-1]))

        def call(self, x: Any) -> Any:
            return keras.ops.matmul(x, self.w) + x

    inputs = keras.Input((256,))
    assert list_streams(keras.Model(inputs, Residual()(inputs)), 64) == [pytest.approx(3 * 4 * 64 * 256)]


def test_biases_vanish_at_every_size_of_a_layer_and_between_traces() -> None:
    """A layer that is called with two shapes, one sample in 16 bits, and a batch size between two traces."""
    import keras

    dense = keras.layers.Dense(256)
    shapes = [keras.Input((4, 64)), keras.Input((8, 64))]
    twice = keras.Model(shapes, [dense(one) for one in shapes])
    assert list_streams(twice, 16) == []
    inputs = keras.Input((333,))
    plain = keras.Model(inputs, keras.layers.Dense(777)(inputs))
    assert list_streams(plain, 1) == []
    assert list_streams(plain, 1, "mixed_bfloat16") == [pytest.approx(bytes_) for bytes_ in (1998, 1552446)]

    small, large = (
        trace_keras_model(plain, options=WorkloadOptions(batch_size=size, mode="infer")) for size in (8, 64)
    )
    between = interpolate_workload(large, small, batch_size=28)
    between = replace(between, versions={"keras": "3.15.1", "torch": "2.13"})
    execution = find_keras_execution(between, CHIPS["A100-40GB"])
    assert [kernel.category for kernel in execution.build_kernels(between.ops)] == ["dot"]


@cache
def attention(precision: str) -> Workload:
    """Trace training of an attention layer whose scores are stored."""
    import keras

    keras.config.set_dtype_policy(precision)
    try:
        inputs = keras.Input((256, 64))
        hidden = keras.layers.MultiHeadAttention(4, 16, dropout=0.1)(inputs, inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile("sgd", "mse")
    return trace_keras_model(model, options=WorkloadOptions(batch_size=8))


@pytest.mark.parametrize(
    ("precision", "forward", "backward"), [("float32", 2.0, 2.25), ("mixed_bfloat16", 1.0, 0.0)]
)
def test_training_in_16_bits_spares_the_first_reading_only(
    precision: str, forward: float, backward: float
) -> None:
    """As compiled for an A100: forward two readings of the scores; backward one of scores, gradients and mask."""
    workload = attention(precision)
    scores = 8 * 4 * 256 * 256 * (4 if precision == "float32" else 2)
    for phase, spared in (("forward", forward), ("backward", backward)):
        rows = [op for op in workload.ops if op.phase == phase and op.layer.startswith("multi_head")]
        assert sum(op.fused_bytes_reread for op in rows) == pytest.approx(spared * scores, rel=0.05), phase


def test_published_steps_are_priced_by_their_software_and_chip() -> None:
    """Clusters of TensorFlow before Keras 3 and XLA before Ampere have no such kernels; TorchInductor has."""
    xla = next(m for m in load_published_measurements() if m.framework == "jax")
    new = replace(xla, year=2025.0)
    assert has_row_kernels(new, CHIPS["A100-40GB"])
    others = ({"year": 2021.0}, {"compiled": False})
    assert not any(has_row_kernels(replace(new, **changed), CHIPS["A100-40GB"]) for changed in others)
    assert not has_row_kernels(new, CHIPS["V100-16GB"])
    inductor = replace(new, framework="pytorch")
    assert [has_row_kernels(inductor, CHIPS[name]) for name in ("V100-16GB", "P100-PCIe")] == [True, False]


def test_steps_of_a_file_use_the_kernels_of_their_chip() -> None:
    row = next(m for m in load_published_measurements() if m.framework == "jax")
    row = replace(row, year=2025.0)
    moved = {
        name: sum(
            kernel.bytes_moved * kernel.count
            for kernel in build_traced_run(row, attention("float32"), CHIPS[name]).kernels
        )
        for name in ("V100-16GB", "A100-40GB")
    }
    assert moved["A100-40GB"] < moved["V100-16GB"]


def test_kernels_are_as_traced_unless_asked() -> None:
    ops = softmax().ops
    assert Execution(compiled=True).build_kernels(ops) == Execution(
        compiled=True, row_kernels=False
    ).build_kernels(ops)
    assert Execution(compiled=True).build_kernels(ops) != Execution(compiled=True, row_kernels=True).build_kernels(
        ops
    )


@pytest.mark.parametrize(("backend", "apart"), [("tensorflow", 2), ("jax", 2), ("torch", 0)])
def test_reductions_of_softmax_cost_the_host_no_call(backend: str, apart: int) -> None:
    """The largest and the sum are kernels within one call of `softmax`, and their bytes are counted with it."""
    versions = {"keras": "3.15.1", "jax": "0.10", backend: "2"}
    workload = replace(softmax(), versions=versions, compiled=False)
    kernels = find_keras_execution(workload, CHIPS["A100-40GB"]).build_kernels(workload.ops)

    inner = [kernel for kernel in kernels if kernel.streamed]
    assert sum(kernel.count for kernel in inner) == apart
    assert sum(kernel.flops + kernel.bytes_moved for kernel in inner) == 0.0
    assert sum(kernel.count for kernel in kernels if not kernel.streamed) == 3


@pytest.mark.parametrize(
    ("name", "compiled", "backend", "expected"),
    [
        ("A100-40GB", True, "jax", True), ("A100-40GB", False, "jax", False), ("V100-16GB", True, "jax", False),
        ("V100-16GB", True, "torch", True), ("A100-40GB", True, "tensorflow", True),
    ],
)  # fmt: skip
def test_rows_stay_on_the_chip_where_triton_reduces_them(
    name: str, compiled: bool, backend: str, expected: bool
) -> None:
    versions = {"keras": "3.13.0", "jax": "0.8.0", **({} if backend == "jax" else {backend: "2.0"})}
    workload = replace(make_workload(), compiled=compiled, versions=versions)

    assert find_keras_execution(workload, CHIPS[name]).row_kernels is expected

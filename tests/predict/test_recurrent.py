"""Recurrent layers as cuDNN runs them, against what the loop does."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Literal

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.predict.executed_ops import Execution
from gpuplan.predict.kernel_table import Kernel, build_kernel_table
from gpuplan.predict.library_kernels import CUDNN, find_cudnn_layers, find_keras_cudnn_layers, find_unfused_parts
from gpuplan.predict.predictor import Predictor
from gpuplan.workload.capture.load import trace_keras_model
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import OpKind
from gpuplan.workload.options import WorkloadOptions

from lab.dataset import read_published_file
from lab.kernel_store import build_run_key

os.environ.setdefault("KERAS_BACKEND", "jax")

BATCH, UNITS, FEATURES = 16, 32, 24
STATE_BYTES = 4 * BATCH * UNITS


@cache
def network(layer: str, *, steps: int = 12, mode: Literal["train", "infer"] = "train") -> Workload:
    """Trace a dense layer on each step and one recurrent layer, kernel by kernel."""
    import keras

    inputs = keras.Input((steps, FEATURES))
    hidden = keras.layers.Dense(FEATURES, activation="relu")(inputs)
    kinds = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "none": keras.layers.Dense}
    model = keras.Model(inputs, kinds[layer](UNITS)(hidden))
    model.compile(optimizer="sgd", loss="mse")
    return trace_keras_model(model, options=WorkloadOptions(batch_size=BATCH, mode=mode, compiled=False))


def accelerator(name: str) -> Accelerator:
    return load_catalog().accelerators[name]


def inner(workload: Workload) -> list[Kernel]:
    """Return what the library launches by itself."""
    return [
        kernel
        for kernel in Execution(compiled=False, cudnn_layers=CUDNN).build_kernels(workload.ops)
        if kernel.streamed
    ]


def test_a_step_of_an_lstm_is_a_product_and_a_pointwise_kernel() -> None:
    """By hand, batch 16, 32 units, 12 steps: the product with the recurrent weights and its mirror; 11 + 4 arrays
    of the state's size forward, 14 backward; the bias's gradient reads the gates' gradients once."""
    found = sorted(
        (k.category, k.count, k.m, k.n, k.k, k.bytes_moved / STATE_BYTES) for k in inner(network("lstm"))
    )
    assert [row[:5] for row in found] == [
        ("dot", 12, 16, 32, 128),
        ("dot", 12, 16, 128, 32),
        ("stream", 1, 0, 0, 0),
        ("stream", 12, 0, 0, 0),
        ("stream", 12, 0, 0, 0),
    ]
    assert [row[5] for row in found[2:]] == [4 * 12, 14, 15]


def test_what_waits_for_no_step_is_done_for_all_at_once() -> None:
    """By hand: the input's product and its mirror have 12 x 16 rows; each weight's gradient sums over as many."""
    kernels = Execution(compiled=False, cudnn_layers=CUDNN).build_kernels(network("lstm").ops)
    ours = {(k.m, k.n, k.k) for k in kernels if k.category == "dot" and k.count == 1 and 128 in (k.m, k.n, k.k)}
    assert ours == {(192, 128, 24), (192, 24, 128), (128, 24, 192), (128, 32, 192)}


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_both_ways_do_the_same_products(layer: str) -> None:
    """Batching moves fewer bytes in fewer launches, and multiplies as much."""
    workload = network(layer)
    looped, whole = (
        Execution(compiled=False, cudnn_layers=how).build_kernels(workload.ops) for how in ((), CUDNN)
    )

    def total(kernels: tuple[Kernel, ...], what: str) -> float:
        return sum(getattr(k, what) * k.count for k in kernels if k.category == "dot")

    assert total(whole, "flops") == pytest.approx(total(looped, "flops"))
    assert total(whole, "bytes_moved") < total(looped, "bytes_moved")
    assert sum(k.count for k in whole) < 0.6 * sum(k.count for k in looped)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_the_host_acts_as_often_for_long_sequences_as_for_short_ones(layer: str) -> None:
    """One call a layer and direction: the inner steps are the library's. The loop is dispatched step by step."""

    def dispatches(steps: int, cudnn_layers: frozenset[str]) -> float:
        ops = network(layer, steps=steps).ops
        execution = Execution(compiled=False, cudnn_layers=cudnn_layers)
        return build_kernel_table(execution.build_kernels(ops)).dispatched

    assert dispatches(12, CUDNN) == dispatches(48, CUDNN)
    assert dispatches(48, frozenset()) > 3 * dispatches(12, frozenset())


def test_inference_keeps_nothing_for_a_backward_pass() -> None:
    """11 arrays of the state's size, and no second pass."""
    kernels = inner(network("lstm", mode="infer"))
    assert [k.bytes_moved / STATE_BYTES for k in kernels if k.category == "stream"] == [11]
    assert [(k.n, k.k) for k in kernels if k.category == "dot"] == [(128, 32)]


def test_a_network_without_recurrent_layers_is_the_same_either_way() -> None:
    """Nothing to hand over."""
    ops = network("none").ops
    assert all(op.loop is None for op in ops)
    looped, whole = (Execution(compiled=True, cudnn_layers=how).build_kernels(ops) for how in ((), CUDNN))
    assert looped == whole


@pytest.mark.parametrize(
    ("framework", "compiled", "cudnn_layers"),
    [
        ("pytorch", False, CUDNN),
        ("tensorflow2", False, CUDNN),
        ("tensorflow2", True, frozenset()),
        ("tensorflow1", False, frozenset()),
        ("mxnet", False, frozenset()),
        ("cntk", False, frozenset()),
    ],
)
def test_frameworks_with_recurrent_layers_by_cudnn(
    framework: str, compiled: bool, cudnn_layers: frozenset[str]
) -> None:
    """The ways have different keys in the store of kernels, whatever else is equal."""
    row = replace(read_published_file("profet_keras_aws")[0], framework=framework, compiled=compiled)
    assert find_cudnn_layers(row) == cudnn_layers
    other = replace(row, framework="tensorflow1")
    alike = not cudnn_layers and find_unfused_parts(row) == find_unfused_parts(other)
    assert (build_run_key(row) == build_run_key(other)) == alike


@pytest.mark.parametrize(
    ("name", "keras", "compiled", "cudnn_layers"),
    [
        ("T4", "3.15.1", True, {"lstm"}),
        ("T4", "3.13.2", True, set()),
        ("T4", "3.13.2", False, {"lstm", "gru"}),
        ("TPU-v3", "3.15.1", True, set()),
        ("TPU-v3", "3.15.1", False, set()),
    ],
)
def test_keras_versions_with_recurrent_layers_by_cudnn(
    name: str, keras: str, compiled: bool, cudnn_layers: set[str]
) -> None:
    """Keras's backends: JAX has cuDNN's LSTM since 3.14; PyTorch and TensorFlow have both; TPUs have neither."""
    assert find_keras_cudnn_layers(accelerator(name), keras=keras, compiled=compiled) == cudnn_layers


def test_a_prediction_follows_the_keras_that_runs() -> None:
    """The step alone changes on JAX with Keras 3.14, which hands the LSTM to cuDNN; the GRU is a loop in both."""
    predictor, t4 = Predictor.load(), accelerator("T4")

    def step_s(layer: str, keras: str) -> float:
        workload = replace(network(layer, steps=48), compiled=True, versions={"keras": keras}, own_loop=True)
        return predictor.step_time(workload, t4, look_up=False).time_s.mid

    assert step_s("lstm", "3.14.0") != step_s("lstm", "3.13.2")
    assert step_s("gru", "3.14.0") == step_s("gru", "3.13.2")


def test_the_loop_keeps_its_steps_beside_a_library() -> None:
    """Only the named kinds of layer are handed over."""
    ops = network("lstm").ops
    assert Execution(compiled=False, cudnn_layers={"gru"}).build_kernels(ops) == Execution(
        compiled=False
    ).build_kernels(ops)
    assert {op.count for op in ops if op.loop and op.kind is OpKind.DOT} == {12.0}

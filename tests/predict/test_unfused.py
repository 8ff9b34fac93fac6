"""What TensorFlow composes of primitives where nothing is compiled, against kernels of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.executed_ops import Execution, find_keras_execution
from gpuplan.predict.kernel_table import Kernel
from gpuplan.predict.launches import UnfusedPart
from gpuplan.predict.library_kernels import CUDNN, find_cudnn_layers, find_unfused_parts, has_persistent_norms
from gpuplan.workload.capture.load import load_workload, trace_keras_model
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import Op
from gpuplan.workload.options import WorkloadOptions

from lab.dataset import read_published_file
from lab.kernel_store import build_run_key

os.environ.setdefault("KERAS_BACKEND", "jax")

BATCH, FEATURES = 512, 1024
ARRAY_BYTES = 4 * BATCH * FEATURES


@cache
def network(activation: str) -> Workload:
    """Trace a forward pass of an activation between two others."""
    import keras

    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Activation(activation, name="asked")(keras.layers.ReLU()(inputs))
    model = keras.Model(inputs, keras.layers.ReLU()(hidden))
    return trace_keras_model(model, options=WorkloadOptions(batch_size=BATCH, mode="infer", compiled=False))


def launched(workload: Workload, *unfused: UnfusedPart) -> list[Kernel]:
    return list(Execution(compiled=False, unfused=unfused).build_kernels(workload.ops))


def arrays_moved(kernels: list[Kernel]) -> float:
    return sum(kernel.bytes_moved * kernel.count for kernel in kernels) / ARRAY_BYTES


def launches(kernels: list[Kernel]) -> float:
    return sum(kernel.count for kernel in kernels)


def test_silu_is_a_sigmoid_and_a_product() -> None:
    """By hand: one kernel reads an array and writes one; apart, sigmoid reads one, the product two."""
    whole, apart = launched(network("silu")), launched(network("silu"), "calls")
    assert (launches(whole), arrays_moved(whole)) == (3, pytest.approx(3 * 2, rel=0.01))
    assert (launches(apart), arrays_moved(apart)) == (4, pytest.approx(2 + (2 + 3) + 2, rel=0.01))


def test_batch_normalization_is_composed_on_pytorch() -> None:
    """By hand, with given statistics: one kernel reads an array and writes one; apart, a product and a sum do, and
    six kernels compute their factors from arrays of one value per feature."""
    import keras

    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.BatchNormalization()(keras.layers.ReLU()(inputs))
    model = keras.Model(inputs, keras.layers.ReLU()(hidden))
    options = WorkloadOptions(batch_size=BATCH, mode="infer", compiled=False)
    workload = trace_keras_model(model, options=options)
    whole, apart = launched(workload, "calls"), launched(workload, "torch_calls")

    assert (launches(whole), arrays_moved(whole)) == (3, pytest.approx(3 * 2, rel=0.02))
    assert (launches(apart), arrays_moved(apart)) == (2 + 2 + 6, pytest.approx(4 * 2, rel=0.02))


def normalized(layer: str) -> Workload:
    """Trace a training step of a normalization between two activations."""
    import keras

    inputs = keras.Input((FEATURES,))
    norm = getattr(keras.layers, layer)(center=False, scale=False)
    model = keras.Model(inputs, keras.layers.ReLU()(norm(keras.layers.Dense(FEATURES)(inputs))))
    model.compile(optimizer="sgd", loss="mse")
    return trace_keras_model(model, options=WorkloadOptions(batch_size=BATCH, compiled=False))


def test_persistent_batch_normalization_reads_each_array_once() -> None:
    """By hand: the forward pass reads one array less, the backward pass two; other layers move the same."""
    batch, layer = normalized("BatchNormalization").ops, normalized("LayerNormalization").ops

    def moved(ops: tuple[Op, ...], *, persistent: bool) -> float:
        return arrays_moved(list(Execution(compiled=False, persistent_norms=persistent).build_kernels(ops)))

    saved = moved(batch, persistent=False) - moved(batch, persistent=True)
    assert saved == pytest.approx(3, rel=0.01)
    assert moved(layer, persistent=False) == moved(layer, persistent=True)


def test_persistent_batch_normalization_of_published_rows() -> None:
    """Training in 16 bits with channels last, but for TensorFlow and XLA; the kernels are traced apart."""
    row = next(m for m in read_published_file("timm_train_rtx3090") if m.layout == "nhwc")
    assert has_persistent_norms(row)
    others = ({"layout": "nchw"}, {"precision": "tf32"}, {"mode": "infer"}, {"compiled": True})
    for changed in (*others, {"framework": "tensorflow1"}):
        assert not has_persistent_norms(replace(row, **changed))
    assert build_run_key(row) != build_run_key(replace(row, layout="nchw"))


def test_each_backend_composes_what_it_has_no_kernel_for() -> None:
    """TensorFlow GELU, layer normalization and softmax, JAX softmax, Keras on PyTorch batch normalization."""
    workload, t4 = network("silu"), load_catalog().accelerators["T4"]

    def composed(backend: str, *, compiled: bool = False) -> frozenset[UnfusedPart]:
        versions = {"keras": "3.15.1", "jax": "0.10", backend: "2"}
        return find_keras_execution(replace(workload, versions=versions, compiled=compiled), t4).unfused

    assert composed("tensorflow") == {"calls", "softmax"}
    assert composed("torch") == {"torch_calls"}
    assert composed("jax") == {"softmax"}
    assert composed("jax", compiled=True) == composed("tensorflow", compiled=True) == set()


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "softmax"])
def test_what_every_framework_has_a_kernel_for_stays_whole(activation: str) -> None:
    assert launched(network(activation), "calls") == launched(network(activation))


def test_layer_normalization_apart_moves_six_times_as_much() -> None:
    """By hand: two means and one of squares (3 arrays), a difference and its square (4), the scale (1), its
    products with the mean (2) and with the array (3), two sums (2 + 3); whole, it reads twice and writes once."""
    import keras

    inputs = keras.Input((FEATURES,))
    model = keras.Model(inputs, keras.layers.LayerNormalization()(inputs))
    options = WorkloadOptions(batch_size=BATCH, mode="infer", compiled=False)
    workload = trace_keras_model(model, options=options)
    assert arrays_moved(launched(workload)) == pytest.approx(3, rel=0.01)
    assert arrays_moved(launched(workload, "calls")) == pytest.approx(18, rel=0.01)


@pytest.mark.parametrize(("optimizer", "kernels", "arrays"), [("sgd", 1, 3), ("momentum", 3, 8), ("adam", 8, 22)])
def test_an_optimizer_of_primitives(optimizer: str, kernels: int, arrays: int) -> None:
    """By hand, one variable of 512 x 1024: SGD adds the scaled gradient (3 arrays); with momentum it scales what
    it keeps (2) and adds twice (3 + 3). Adam adds to each of two means the scaled difference from the gradient or
    its square (3 + 3 each), scales the first (2), takes the root of the second (2), adds to it (2) and adds their
    quotient to the variable (4). The host acts once."""
    import keras

    kinds = {"sgd": keras.optimizers.SGD(), "momentum": keras.optimizers.SGD(momentum=0.9)}
    model = keras.Sequential([keras.Input((BATCH,)), keras.layers.Dense(FEATURES, use_bias=False)])
    model.compile(optimizer=kinds.get(optimizer, optimizer), loss="mse")
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=1, compiled=False))
    found = [kernel for kernel in launched(workload, "updates") if kernel.bytes_moved > 1.5 * ARRAY_BYTES]
    assert (launches(found), arrays_moved(found)) == (kernels, pytest.approx(arrays, rel=0.01))
    assert sum(kernel.count for kernel in found if not kernel.streamed) == 1


def test_unfused_parts_by_framework() -> None:
    """TensorFlow calls, PyTorch's own optimizers updates, and none what XLA compiles; each has its own trace."""
    (row, *_) = (
        m for m in read_published_file("dlperf_language") if m.framework == "tensorflow2" and not m.compiled
    )
    compiled, eager = replace(row, compiled=True), replace(row, framework="pytorch", stack="eager")
    tuned = replace(eager, stack="tuned")
    found = [find_unfused_parts(m) for m in (row, eager, tuned, compiled)]
    assert found == [{"calls"}, {"updates"}, set(), set()]
    assert len({build_run_key(m) for m in (row, eager, tuned, compiled)}) == 4


def test_loops_of_keras_2_are_launched_operation_by_operation() -> None:
    """keras_mxnet_aws: Keras 2.1.5 on MXNet and TensorFlow 1; a script that asks for cuDNN's layer has no loop."""
    rows = read_published_file("keras_mxnet_aws_language")
    assert {frozenset({"loops"}), frozenset({"calls", "loops"})} == {find_unfused_parts(m) for m in rows}
    asked = {m.framework: find_cudnn_layers(m) for m in read_published_file("minimaxir_keras_language")
             if "Nov 2017" in m.software and m.accelerator != "CPU"}  # fmt: skip
    assert asked == {"tensorflow1": CUDNN, "cntk": frozenset()}


def test_operations_of_a_keras_2_cell_are_kernels_of_their_own() -> None:
    """By hand: two products a step forward, and three backward but for the first state's gradient, of each of four
    gates or of all at once; at least 26 other operations a step forward. The host dispatches none of them."""
    published = Path(str(resources.files("gpuplan.profiles.published")))
    steps = 3
    for implementation, products in ((1, 4), (2, 1)):
        workload = load_workload(
            f"recurrent.py:lstm_text_generation?sequence_length={steps}&implementation={implementation}",
            options=WorkloadOptions(batch_size=8, compiled=False),
            base=published,
        )
        inside = [kernel for kernel in launched(workload, "loops") if kernel.streamed]
        dots = launches([kernel for kernel in inside if kernel.category == "dot"])
        assert dots == (2 * steps + 3 * steps - 1) * products
        assert launches(inside) - dots > 26 * steps
        assert not any(kernel.streamed for kernel in launched(workload))


def test_updates_by_reference_stay_apart_beside_xla() -> None:
    """BERT's own optimizers on TensorFlow 1: XLA compiles the rest; without it calls are apart too."""
    rows = [
        m for m in read_published_file("nvidia_dle_language") if m.framework == "tensorflow1" and "bert" in m.model
    ]
    assert {m.optimizer for m in rows if m.mode == "train"} == {"adamw", "lamb"}
    (compiled, *_) = (m for m in rows if m.compiled and m.optimizer == "adamw")
    assert find_unfused_parts(compiled) == {"updates"}
    assert find_unfused_parts(replace(compiled, compiled=False)) == {"calls", "updates"}
    assert find_unfused_parts(replace(compiled, optimizer="adam")) == set()


def test_transformer_xl_has_its_updates_compiled_and_nothing_else() -> None:
    """Its script on TensorFlow 1 turns XLA on for the optimizer alone (`jit_optimizer`): calls stay apart."""
    rows = [m for m in read_published_file("nvidia_dle_language") if m.family == "transformer_xl"]
    found = {find_unfused_parts(m) for m in rows if m.framework == "tensorflow1"}
    assert found == {frozenset({"calls"})}


def test_updates_apart_beside_xla_are_kernels_of_their_own() -> None:
    """By hand: Adam of one variable is a kernel that reads four arrays and writes three, or eight that move 22."""
    import keras

    model = keras.Sequential([keras.Input((BATCH,)), keras.layers.Dense(FEATURES, use_bias=False)])
    model.compile(optimizer="adam", loss="mse")
    ops = trace_keras_model(model, options=WorkloadOptions(batch_size=1, compiled=True)).ops

    def large(*apart: UnfusedPart) -> list[Kernel]:
        kernels = Execution(compiled=True, unfused=apart).build_kernels(ops)
        return [k for k in kernels if k.category == "stream" and k.bytes_moved > 1.5 * ARRAY_BYTES]

    assert (launches(large()), arrays_moved(large())) == (1, pytest.approx(7, rel=0.02))
    assert (launches(large("updates")), arrays_moved(large("updates"))) == (8, pytest.approx(22, rel=0.02))

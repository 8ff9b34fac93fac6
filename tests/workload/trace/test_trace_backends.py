"""TensorFlow's graph and PyTorch's fake tensors count the same step as JAX's trace."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.capture.tracing_process import trace_in_child
from gpuplan.workload.errors import BackendError
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import OpKind

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = [("tensorflow", "mnist_cnn.py"), ("torch", "models.py:lstm_text?length=12&vocabulary=2000&units=32")]


@pytest.mark.parametrize(("backend", "example"), CASES)
def test_the_same_flops_as_on_jax(backend: str, example: str) -> None:
    """Within 3 %: what a backend leaves out or adds beside the contractions is small.

    PyTorch's loop of an LSTM adds up gradients as long as the sequence, all zeros but one step: no arithmetic.
    `benchmarks/trace_agreement.py` compares all examples.
    """
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed; the extra `test` brings it")
    options = WorkloadOptions(batch_size=None if example.endswith(".py") else 16)
    answer = trace_in_child(str(EXAMPLES / example), base=EXAMPLES, options=options, argv=(), backend=backend)
    counted = Workload.from_json(answer["workload"])
    traced = load_workload(str(EXAMPLES / example), options=options)

    assert counted.flops_per_step == pytest.approx(traced.flops_per_step, rel=0.03)
    assert counted.parameters == traced.parameters
    known = {OpKind.CONV, OpKind.DOT, OpKind.POOL}
    assert known & {op.kind for op in counted.ops} == known & {op.kind for op in traced.ops}


FOREIGN = """
import keras
import {module}

class Foreign(keras.layers.Layer):
    def call(self, x):
        return {call}

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

def build():
    return keras.Sequential([keras.Input((64,)), Foreign(), keras.layers.Dense(32), keras.layers.Dense(3)])
"""


@pytest.mark.parametrize(("backend", "call"), [("torch", "torch.roll(x, 1, dims=1)")])
def test_a_model_of_another_backend_only_is_traced_there(backend: str, call: str, tmp_path: Path) -> None:
    """Dense layers by hand: 2 m n k forward and to the weights, and to the input of the second alone."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed; the extra `test` brings it")
    (tmp_path / "foreign.py").write_text(FOREIGN.format(module=backend, call=call))

    workload = load_workload("foreign.py:build", options=WorkloadOptions(batch_size=16), base=tmp_path)

    products = sum(op.flops * op.count for op in workload.ops if op.kind == "dot")
    assert products == 2 * 16 * (2 * 64 * 32 + 3 * 32 * 3)
    assert all(op.m and op.n and op.k for op in workload.ops if op.kind == "dot")
    assert backend in workload.versions
    assert any(f"traced on the {backend} backend" in note for note in workload.notes)


SPECTRAL = """
import keras
import tensorflow as tf

class Spectrum(keras.layers.Layer):
    def call(self, x):
        return tf.abs(tf.signal.rfft(x))

def build():
    return keras.Sequential([keras.Input((64,)), Spectrum(), keras.layers.Dense(3)])
"""


def test_what_tensorflow_says_of_a_tensor_of_jax_is_understood(tmp_path: Path) -> None:
    """TensorFlow raises JAX's error again from its text alone, which fails: an AttributeError of neither of them.

    The spectrum of 64 real numbers has 33: the Dense layer beside it has 3 x 33 + 3 parameters.
    """
    if find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed; the extra `test` brings it")
    (tmp_path / "spectral.py").write_text(SPECTRAL)
    options = WorkloadOptions(batch_size=4)

    with pytest.raises(BackendError, match="_error_repr") as caught:
        trace_in_child("spectral.py:build", base=tmp_path, options=options, argv=(), backend="jax")
    assert caught.value.backend == "tensorflow"
    assert load_workload("spectral.py:build", options=options, base=tmp_path).parameters == 3 * 33 + 3

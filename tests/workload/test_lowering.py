"""The step of a MODEL argument as a module: what it computes is what `fit()` does."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.capture.tracing_process import LoweredStep, lower_step
from gpuplan.workload.options import WorkloadOptions

OPTIONS = WorkloadOptions(batch_size=2)
MODEL = """
import keras

def line():
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mean_squared_error")
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("line")
    (folder / "line.py").write_text(MODEL)
    return folder


@pytest.fixture(scope="module")
def lowered(folder: Path) -> LoweredStep:
    return lower_step("line.py:line", options=OPTIONS, platform="cpu", base=folder)


def test_the_module_does_one_step_of_gradient_descent(lowered: LoweredStep) -> None:
    """From weights of zero: the gradient is -2/2 x^T y, so that half of it moves them by x^T y / 2."""
    import jax
    import numpy as np
    from jax import export

    x, y = np.array([[1, 2, 3], [4, 5, 6]], "float32"), np.array([[2], [4]], "float32")
    exported = export.deserialize(bytearray(lowered.module))
    (state, _), _ = jax.tree.unflatten(exported.in_tree, [np.zeros(a.shape, a.dtype) for a in exported.in_avals])
    variables, optimizer = (
        state[0],
        [np.full(v.shape, 0.5 if v.shape == () and v.dtype == "float32" else 0).astype(v.dtype) for v in state[2]],
    )

    _, (weights, *_) = exported.call((variables, state[1], optimizer, state[3]), (x, y))

    assert np.allclose(weights[0], x.T @ y / 2)
    assert exported.in_avals[-2].shape == (2, 3)
    assert "line.py" in {Path(file).name for file in lowered.files}


def test_a_saved_workload_cannot_be_lowered(tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text("{}")

    with pytest.raises(UsageError, match="no program"):
        lower_step("saved.json", options=WorkloadOptions(), platform="tpu", base=tmp_path)

"""A model that its own code lays out over devices: lowered with that layout, and compiled by XLA with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpuplan.workload.build.lowering import LoweredStep, load_or_lower_step
from gpuplan.workload.load import load_workload
from gpuplan.workload.options import WorkloadOptions

SCRIPT = """
import keras
import numpy as np
from keras import distribution, layers

mesh = distribution.DeviceMesh((1, 4), ["batch", "model"], distribution.list_devices("tpu"))
rules = distribution.LayoutMap(mesh)
rules[".*up/kernel"] = (None, "model")
rules[".*down/kernel"] = ("model", None)
distribution.set_distribution(distribution.ModelParallel(layout_map=rules, batch_dim_name="batch"))
stack = [layers.Dense(256, use_bias=False, name="up"), layers.Dense(64, use_bias=False, name="down")]
model = keras.Sequential([keras.Input((64,)), *stack])
model.compile("adam", "mean_squared_error")
model.fit(np.zeros((32, 64)), np.zeros((32, 64)), batch_size=16)
"""
# What XLA makes of a lowered step on four devices of this machine: the sizes of arguments on one.
COMPILE = """
import json, sys
import jax, numpy as np
from jax import export
from gpuplan.predict.compile.child import _build_shardings

exported = export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
places = _build_shardings(exported, jax.devices(), json.loads(sys.argv[2]))
arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=p) for a, p in zip(exported.in_avals, places)]
arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
step = jax.jit(exported.call).trace(*arguments, **named).lower().compile()
print(step.memory_analysis().argument_size_in_bytes)
"""
OPTIONS = WorkloadOptions(devices=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("laid_out")
    (folder / "stack.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def lowered(folder: Path) -> LoweredStep:
    return load_or_lower_step("stack.py", options=OPTIONS, platform="cpu", base=folder)


def test_a_script_that_lays_its_model_out_is_traced_and_says_so(folder: Path) -> None:
    assert load_workload("stack.py", options=OPTIONS, base=folder).distribution == "ModelParallel"


def test_the_layout_comes_with_the_step(lowered: LoweredStep) -> None:
    assert (lowered.mesh, lowered.batch_size) == ((("batch", 1), ("model", 4)), 16)


def test_a_device_holds_its_share_of_the_weights(lowered: LoweredStep) -> None:
    """Two kernels of 64 x 256 float32 and Adam's two moments of each are shared by four, x and y are not."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, "-c", COMPILE, str(lowered.path), json.dumps(lowered.mesh)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)

    kernels, batch = 3 * 2 * 64 * 256 * 4 // 4, 2 * 16 * 64 * 4
    assert kernels + batch <= int(done.stdout) <= kernels + batch + 64

"""Scripts that distribute their model over more devices than this machine has, traced without flags."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import DeviceLayout, VariableBytes, Workload
from gpuplan.workload.options import WorkloadOptions

START = """
import keras
import numpy as np
from keras import distribution, layers
from keras.distribution import DataParallel, DeviceMesh, LayoutMap, ModelParallel, list_devices


def divide(mesh):
    rules = LayoutMap(mesh)
    rules[".*up/kernel"] = (None, "model")
    rules[".*down/kernel"] = ("model", None)
    distribution.set_distribution(ModelParallel(layout_map=rules, batch_dim_name="batch"))

"""
FIT = """
stack = [layers.Dense(256, use_bias=False, name="up"), layers.Dense(64, use_bias=False, name="down")]
model = keras.Sequential([keras.Input((64,)), *stack])
model.compile("adam", "mean_squared_error")
model.fit(np.zeros((32, 64)), np.zeros((32, 64)), batch_size=16)
"""
KERNELS = 2 * 64 * 256 * 4  # two kernels of float32 [bytes]
SCALARS = 8  # of Adam: iterations and learning rate [bytes]


def hold(parts: int) -> VariableBytes:
    """Return the variables of a device that holds one of some parts of both kernels."""
    return VariableBytes(parameters=KERNELS // parts, optimizer=2 * KERNELS // parts + SCALARS, state=8)


def trace(folder: Path, lines: str) -> Workload:
    (folder / "train.py").write_text(START + lines + FIT)
    return load_workload("train.py", options=WorkloadOptions(), base=folder)


@pytest.mark.parametrize(
    ("lines", "layout"),
    [
        pytest.param(
            'divide(DeviceMesh((1, 4), ["batch", "model"], list_devices("tpu")))',
            DeviceLayout(devices=4, replicas=1, takes_all=False, whole=hold(1), each=hold(4)),
            id="a mesh of a stated size",
        ),
        pytest.param(
            'devices = list_devices()\ndivide(DeviceMesh((len(devices) // 2, 2), ["batch", "model"], devices))',
            DeviceLayout(devices=8, replicas=4, takes_all=True, whole=hold(1), each=hold(2)),
            id="a mesh of all devices, as on a machine of eight",
        ),
        pytest.param(
            'distribution.set_distribution(DataParallel(devices=list_devices("gpu")[:4]))',
            DeviceLayout(devices=4, replicas=4, takes_all=False, whole=hold(1), each=hold(1)),
            id="the first four",
        ),
        pytest.param(
            'mesh = DeviceMesh((2,), ["batch"], ["gpu:0", "gpu:1"])\n'
            "distribution.set_distribution(DataParallel(device_mesh=mesh))",
            DeviceLayout(devices=2, replicas=2, takes_all=False, whole=hold(1), each=hold(1)),
            id="devices by name",
        ),
        pytest.param(
            'import jax\nmesh = jax.make_mesh((2, 2), ("batch", "model"))\n'
            'divide(DeviceMesh((2, 2), ["batch", "model"], mesh.devices))',
            DeviceLayout(devices=4, replicas=2, takes_all=False, whole=hold(1), each=hold(2)),
            id="a mesh of JAX",
        ),
        pytest.param(
            "distribution.set_distribution(DataParallel())",
            DeviceLayout(devices=1, replicas=1, takes_all=True, whole=hold(1), each=hold(1)),
            id="all devices",
        ),
    ],
)
def test_a_script_is_traced_with_the_devices_that_it_asks_for(
    tmp_path: Path, lines: str, layout: DeviceLayout
) -> None:
    """Kernels of 64 x 256 and 256 x 64, and Adam's two moments of each, by hand; a saved workload keeps it."""
    workload = trace(tmp_path, lines)

    assert workload.layout == layout
    assert Workload.from_json(workload.to_json()).layout == layout
    assert (workload.batch_size, workload.memory.parameter_bytes) == (16, KERNELS)


def test_a_mesh_that_is_too_large_for_this_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuplanError, match=r"`train.py` asks for 100000 devices: up to 4096 can be traced"):
        trace(tmp_path, 'divide(DeviceMesh((1, 100_000), ["batch", "model"]))')


def test_a_mesh_that_no_number_of_devices_fits_is_the_script_s_own_error(tmp_path: Path) -> None:
    """Three devices were given by name for a mesh of two: Keras refuses that anywhere."""
    with pytest.raises(GpuplanError, match="Shape does not match the number of devices"):
        trace(tmp_path, 'DeviceMesh((2,), ["batch"], ["gpu:0", "gpu:1", "gpu:2"])')

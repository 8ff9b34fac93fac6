"""`gpuplan estimate train.py` of scripts that distribute their model: what they say is what is planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers

Run = Callable[..., Any]
DATA_PARALLEL = """
import keras
import numpy as np
from keras import distribution, layers

distribution.set_distribution(distribution.DataParallel(devices=distribution.list_devices("gpu")))
model = keras.Sequential([keras.Input((64,)), layers.Dense(256), layers.Dense(64)])
model.compile("adam", "mean_squared_error")
model.fit(np.zeros((320, 64)), np.zeros((320, 64)), batch_size=16, epochs=2)
"""
MODEL_PARALLEL = """
import keras
import numpy as np
from keras import distribution, layers

mesh = distribution.DeviceMesh((2, 4), ["batch", "model"], distribution.list_devices("tpu"))
rules = distribution.LayoutMap(mesh)
rules[".*up/kernel"] = (None, "model")
rules[".*down/kernel"] = ("model", None)
distribution.set_distribution(distribution.ModelParallel(layout_map=rules, batch_dim_name="batch"))
stack = [layers.Dense(2048, use_bias=False, name="up"), layers.Dense(512, use_bias=False, name="down")]
model = keras.Sequential([keras.Input((512,)), *stack])
model.compile("adam", "mean_squared_error")
model.fit(np.zeros((320, 512)), np.zeros((320, 512)), batch_size=32, epochs=2)
"""
KERNELS = 2 * 512 * 2048 * 4  # [bytes]
ASKED = ("--provider", "aws", "--region", "us-east-1", "--purchase", "on-demand", "--accelerator", "V100-16GB")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Write the scripts, and keep one cache for all tests of this file: each script is traced once."""
    path = tmp_path_factory.mktemp("distributed")
    (path / "copies.py").write_text(DATA_PARALLEL)
    (path / "layout.py").write_text(MODEL_PARALLEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setenv("GPUPLAN_CACHE_DIR", str(path / "cache"))
        yield path


def estimate(gpuplan: Run, *arguments: str) -> dict[str, Any]:
    """Return the document of an estimate, which its schema accepts."""
    done = gpuplan("estimate", *arguments, *ASKED, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    jsonschema.validate(document, schema)
    return document


def test_data_parallel_over_all_devices_shares_the_batch_of_fit_on_every_offer(gpuplan: Run) -> None:
    """Keras divides the batch of `fit()`: 320 samples in batches of 16 are 40 steps of 2 epochs on any number."""
    found = estimate(gpuplan, "copies.py")

    rows = {
        one["devices"]: (one["global_batch_size"], one["batch_size_per_device"], one["steps"], one["shard"])
        for one in read_offers(found)
    }
    assert rows == {1.0: (16, 16, 40, "none"), 4.0: (16, 4, 40, "none"), 8.0: (16, 2, 40, "none")}
    assert found["options"]["scaling"] == "strong"
    assert found["workload"]["notes"][0] == (
        "the script's DataParallel over all devices of each offer is followed: each holds the whole model, and "
        "they share a batch of 16"
    )


def test_flags_win_over_a_script(gpuplan: Run) -> None:
    found = estimate(gpuplan, "copies.py", "--scaling", "weak", "--devices", "4", "--shard", "zero1")

    (one,) = read_offers(found)
    assert (one["global_batch_size"], one["steps"], one["shard"]) == (64, 10, "zero1")


def test_a_layout_is_followed_on_as_many_devices_as_its_mesh_has(gpuplan: Run) -> None:
    """Each of eight devices holds a quarter of both kernels; two replicas share the batch.

    A forward pass sums the second product over the four devices of a replica (16 x 512 float32), and the step sums
    the gradients of a device's parts of both kernels over the two replicas. The loss adds some bytes.
    """
    (one,) = read_offers(estimate(gpuplan, "layout.py"))

    assert (one["devices"], one["shard"], one["global_batch_size"], one["batch_size_per_device"]) == (
        8.0,
        "script",
        32,
        16,
    )
    parts = one["memory_parts_bytes"]
    assert (parts["weights"], parts["gradients"]) == (KERNELS // 4, KERNELS // 4)
    assert parts["optimizer"] == 2 * KERNELS // 4 + 8
    assert sum(parts.values()) == one["memory_bytes"]
    shared_gb, summed_gb = 2 * 3 / 4 * 16 * 512 * 4 / 1e9, 2 * 1 / 2 * KERNELS / 4 / 1e9
    assert (
        f"each sends {shared_gb:.3g} GB for the products that it shares, and {summed_gb:.3g} GB for its replicas "
        "over NVLink" in one["notes"][0]
    )


def test_a_layout_is_not_priced_as_copies(gpuplan: Run) -> None:
    """On another number of devices there is no time, and the hint names the way to plan copies."""
    done = gpuplan("estimate", "layout.py", *ASKED, "--devices", "4", "--json")

    assert done.code == 3
    (one,) = read_offers(json.loads(done.out))
    assert one["step_time_s"] is None
    assert one["notes"][0].startswith("the script lays its model out over 8 devices, not 4")
    assert "hint: `--shard none` plans a copy of the model on each device" in done.err


def test_no_offer_with_the_devices_of_a_mesh_is_one_clear_line(gpuplan: Run) -> None:
    done = gpuplan("estimate", "layout.py", "--accelerator", "T4", "--provider", "colab")

    assert done.code == 3
    assert "`layout.py` distributes its model over 8 devices, which none of the selected offers has" in done.err


def test_an_explicit_sharding_takes_the_place_of_a_layout(gpuplan: Run) -> None:
    found = estimate(gpuplan, "layout.py", "--shard", "fsdp")

    (one,) = read_offers(found)
    assert (one["shard"], one["batch_size_per_device"]) == ("fsdp", 4)
    assert "`--shard fsdp` is" in found["workload"]["notes"][0]


def test_the_memory_of_a_layout_stays_modelled_beside_compile(gpuplan: Run) -> None:
    """Nothing is compiled: time, memory and batch are those without it, and a line says so."""
    (plain,) = read_offers(estimate(gpuplan, "layout.py"))

    done = gpuplan("estimate", "layout.py", *ASKED, "--compile", "--json")
    (one,) = read_offers(json.loads(done.out))

    why = "the script lays its step out over devices (`ModelParallel`)"
    assert done.code == 0
    assert done.err == f"warning: V100-16GB: {why}; its memory is modelled\n"
    assert f"not compiled: {why}" in " ".join(one.pop("notes"))
    assert one == {key: value for key, value in plain.items() if key != "notes"}

"""Saved models: configuration only, and no code of the file runs."""

from __future__ import annotations

import base64
import json
import marshal
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.build.from_reference import build_saved_model
from gpuplan.workload.capture.materialize import abstract_variables


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A compiled model in Keras's own format, with a subset of its file: the weights are taken out."""
    model = keras.Sequential(
        [keras.Input((12,)), keras.layers.Dense(7, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="categorical_crossentropy")
    whole = tmp_path / "whole.keras"
    model.save(whole)
    return edited(whole, tmp_path / "model.keras", lambda config: config)


def edited(source: Path, target: Path, change: Callable[[Any], Any]) -> Path:
    """Copy a `.keras` file with its configuration changed, and without its weights."""
    with zipfile.ZipFile(source) as archive:
        config = json.loads(archive.read("config.json"))
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("config.json", json.dumps(change(config)))
    return target


def test_a_file_without_weights_gives_the_whole_model(saved: Path) -> None:
    """Only the configuration is read: 12 x 7 + 7 + 7 x 3 + 3 parameters, compiled as it was saved."""
    with abstract_variables():
        model = build_saved_model(saved, precision=None)

    assert model.count_params() == 12 * 7 + 7 + 7 * 3 + 3
    assert model.compiled
    assert model.optimizer.momentum == 0.9
    assert all(variable._value is None for variable in model.variables)


def test_a_precision_replaces_the_policy_of_every_layer(saved: Path) -> None:
    """`mixed_bfloat16`: products in bfloat16, weights in float32."""
    with abstract_variables():
        model = build_saved_model(saved, precision="mixed_bfloat16")

    assert {layer.compute_dtype for layer in model.layers} == {"bfloat16"}
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_older_hdf5_file_is_read_as_well(tmp_path: Path) -> None:
    """`model.h5` holds the same configuration in another place; the loss is the saved one."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    model.compile(optimizer="rmsprop", loss="mean_absolute_error")
    model.save(tmp_path / "model.h5")

    with abstract_variables():
        read = build_saved_model(tmp_path / "model.h5", precision=None)

    assert read.count_params() == 5 * 2 + 2
    assert read.compiled
    assert type(read.optimizer).__name__ == "RMSprop"


def evil_lambda(marker: Path) -> dict[str, Any]:
    """What Keras writes for a Python lambda, here one that leaves a file behind when it runs or loads."""
    code = compile(f"lambda x: open({str(marker)!r}, 'w').close() or x", "evil", "eval").co_consts[0]
    return {
        "class_name": "__lambda__",
        "config": {"value": [base64.b64encode(marshal.dumps(code)).decode(), None, None]},
    }


def with_activation(activation: Any) -> Callable[[Any], Any]:
    """Return an edit that gives the first dense layer another activation."""

    def change(config: Any) -> Any:
        config["config"]["layers"][1]["config"]["activation"] = activation
        return config

    return change


@pytest.mark.parametrize(
    "activation",
    [
        {"class_name": "function", "config": "system", "module": "os", "registered_name": "system"},
        {"class_name": "Popen", "config": {"args": "touch MARKER"}, "module": "subprocess"},
        {"class_name": "function", "config": "get_file", "module": "keras.utils", "registered_name": "get_file"},
        {"class_name": "function", "config": "enable_unsafe_deserialization", "module": "keras.config"},
        {"class_name": "Lambda", "config": {"function": "x"}, "module": "keras.layers"},
    ],
)
def test_a_file_that_names_anything_outside_keras_is_refused(saved: Path, activation: Any) -> None:
    """Modules of Python, and those of Keras that read files or switch safety off, are never looked up."""
    hostile = edited(saved, saved.with_name("hostile.keras"), with_activation(activation))

    with pytest.raises(UsageError, match=r"hostile\.keras"):
        build_saved_model(hostile, precision=None)


def test_a_malicious_lambda_does_not_run(saved: Path, tmp_path: Path) -> None:
    """The file is refused by name, with the way out, and the marker that its code would leave is absent."""
    marker = tmp_path / "it-ran"
    hostile = edited(saved, saved.with_name("hostile.keras"), with_activation(evil_lambda(marker)))

    with pytest.raises(UsageError, match="does not run") as caught:
        build_saved_model(hostile, precision=None)

    assert "models.py:load_model" in str(caught.value.hint)
    assert not marker.exists()


def test_the_malicious_lambda_is_not_a_straw_man(saved: Path, tmp_path: Path) -> None:
    """With Keras's safety off the same file does run its code, so the test above can fail."""
    marker = tmp_path / "it-ran"
    hostile = edited(saved, saved.with_name("hostile.keras"), with_activation(evil_lambda(marker)))
    with zipfile.ZipFile(hostile) as archive:
        config = json.loads(archive.read("config.json"))

    keras.saving.deserialize_keras_object(config, safe_mode=False)(keras.ops.ones((1, 12)))

    assert marker.exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_lambda_layer_in_an_hdf5_file_is_refused(tmp_path: Path) -> None:
    """The older format had no safe mode of its own."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Lambda(lambda x: x * 2)])
    model.save(tmp_path / "model.h5")

    with pytest.raises(UsageError, match="Lambda"):
        build_saved_model(tmp_path / "model.h5", precision=None)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    """Bytes that are no model give one line, not a traceback."""
    (tmp_path / name).write_bytes(b"not a model")

    with pytest.raises(UsageError, match=f"`{name}` is no"):
        build_saved_model(tmp_path / name, precision=None)


def test_a_configuration_that_unpacks_to_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A file of less than a megabyte may unpack to any size: one line, and little memory."""
    with zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("config.json", "[" + "[]," * (30 * 2**20) + "[]]")
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"`bomb\.keras` is .* its configuration has more than 16 MiB$"):
            build_saved_model(tmp_path / "bomb.keras", precision=None)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (tmp_path / "bomb.keras").stat().st_size < 2**20
    assert most_bytes < 100 * 2**20


def test_a_class_of_the_author_is_asked_for_by_name(saved: Path) -> None:
    """A custom layer cannot be known: the error names it and points at a function."""
    custom = {"class_name": "Mine", "config": {}, "module": "my_layers", "registered_name": "Custom>Mine"}
    foreign = edited(saved, saved.with_name("foreign.keras"), with_activation(custom))

    with pytest.raises(UsageError, match=r"my_layers\.Mine") as caught:
        build_saved_model(foreign, precision=None)

    assert caught.value.hint

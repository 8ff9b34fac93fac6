"""Construction of a Keras model from a saved file: configurations are read without weights, no code is run."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras

from ...errors import UsageError
from ...records import parse_json
from ...units import MIB
from ..errors import to_one_line
from ..options import get_keras_policy

TRUSTED_PACKAGES = ("keras", "keras_hub", "keras_cv", "keras_nlp", "builtins")
NOT_MODELING = ("keras.config", "keras.utils", "keras.saving", "keras.export", "keras.datasets")
CODE_CLASSES = ("__lambda__", "Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
FLOAT_POLICIES = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
MOST_BYTES = 16 * MIB  # of a configuration, ten times that of the largest applications
SAVE_AGAIN = "write it again with `model.save('{name}')`, or name the function that builds it: `models.py:build`"
BY_FUNCTION = "load it in a function and give that to gpuplan: `models.py:load_model`"


def build_saved_model(path: Path, *, precision: str | None) -> Any:
    """Build the model described by a `.keras` or `.h5` file, compiled as there; `precision` replaces its policy.

    Raises UsageError if the file is not a Keras model, contains code, or needs custom classes.
    """
    config, training = _read_archive(path) if path.suffix == ".keras" else _read_hdf5(path)
    if not isinstance(config, dict):
        raise UsageError(f"`{path.name}` describes no model", hint=BY_FUNCTION)
    for part in (config, training):
        require_no_code(part, name=path.name)
    if precision is not None:
        config = replace_dtype_policy(config, get_keras_policy(precision))
    faults = (ValueError, TypeError, KeyError, AttributeError, ImportError)
    with _refusing(f"`{path.name}` cannot be built", *faults):
        if path.suffix == ".keras":
            model = keras.saving.deserialize_keras_object(config, safe_mode=True)
        else:
            model = _build_from_legacy_config(config, training)
        if not isinstance(model, keras.Model):
            raise TypeError(f"it describes a {type(model).__name__}, not a model")
        return model


@contextmanager
def _refusing(what: str, *faults: type[Exception], hint: str = BY_FUNCTION) -> Iterator[None]:
    """Convert exceptions to a UsageError that says what is wrong."""
    try:
        yield
    except faults as error:
        raise UsageError(f"{what}: {to_one_line(error)}", hint=hint) from error


def _read_archive(path: Path) -> tuple[Any, None]:
    faults = (zipfile.BadZipFile, KeyError, ValueError, OSError)
    refusing = _refusing(f"`{path.name}` is not a .keras file", *faults, hint=SAVE_AGAIN.format(name=path.name))
    with refusing, zipfile.ZipFile(path) as archive, archive.open("config.json") as file:
        return _parse(file.read(MOST_BYTES + 1)), None  # which may unpack to far more than the archive has


def _parse(text: str | bytes) -> Any:
    if len(text) > MOST_BYTES:
        raise ValueError(f"its configuration has more than {MOST_BYTES // MIB} MiB")
    return parse_json(text)


def _read_hdf5(path: Path) -> tuple[Any, Any]:
    """Return the configurations of the model and of its training; None for one that is not compiled."""
    import h5py  # type: ignore[import-untyped]

    again = SAVE_AGAIN.format(name=path.name)
    with _refusing(f"`{path.name}` is not an HDF5 file", OSError, hint=again), h5py.File(path, "r") as file:
        config, training = file.attrs.get("model_config"), file.attrs.get("training_config")
    if config is None:
        raise UsageError(f"`{path.name}` contains only weights, no model", hint=BY_FUNCTION)
    with _refusing(f"the model in `{path.name}` cannot be read", ValueError):
        return _parse(config), None if training is None else _parse(training)


def require_no_code(config: Any, *, name: str) -> None:
    """Raise UsageError if a saved configuration contains code or refers to anything outside Keras.

    It is stricter than Keras's safe mode, which is also enabled, and precedes any class lookup.
    """
    for node in _iter_objects(config):
        kind, module = node.get("class_name"), node.get("module")
        if kind in CODE_CLASSES:
            raise UsageError(f"`{name}` contains a `{kind}`, whose code gpuplan does not run", hint=BY_FUNCTION)
        if not isinstance(module, str):
            continue
        if module.split(".")[0] not in TRUSTED_PACKAGES or module.startswith(NOT_MODELING):
            raise UsageError(f"`{name}` needs `{module}.{kind}`, which is not part of Keras", hint=BY_FUNCTION)


def _iter_objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object of a configuration, including nested ones."""
    pending = [config]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def replace_dtype_policy(config: dict[str, Any], policy: str) -> dict[str, Any]:
    """Return the configuration with the dtype policy of every layer replaced, but not its quantization."""
    copy: dict[str, Any] = json.loads(json.dumps(config))
    for node in _iter_objects(copy):
        inner = node.get("config")
        if not isinstance(inner, dict) or not {"trainable", "dtype"} <= inner.keys():
            continue
        dtype = inner["dtype"]
        if not isinstance(dtype, dict):
            inner["dtype"] = policy if dtype in FLOAT_POLICIES else dtype
        elif dtype.get("class_name") == "DTypePolicy":
            inner["dtype"] = policy
        elif "source_name" in (dtype.get("config") or {}):
            dtype["config"]["source_name"] = policy
    return copy


def _build_from_legacy_config(config: dict[str, Any], training: dict[str, Any] | None) -> Any:
    """Build a model from HDF5's older configuration; Keras has only a private function for it."""
    from keras.src.legacy.saving import saving_options, saving_utils
    from keras.src.saving.serialization_lib import SafeModeScope

    with saving_options.keras_option_scope(use_legacy_config=True), SafeModeScope(True):
        model = saving_utils.model_from_config(config, custom_objects={})
    if training is not None and isinstance(model, keras.Model):
        model.compile(**saving_utils.compile_args_from_training_config(training, {}))
    return model

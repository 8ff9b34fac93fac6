"""Tracing of a model object in the current process without modifying it."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..build.assemble import RunProperties, assemble_workload
from ..build.fit_inputs import FitInputs
from ..build.saved_model import replace_dtype_policy
from ..errors import to_one_line
from ..model import Workload
from ..options import SpecTree, WorkloadOptions, get_keras_policy
from .materialize import NOT_ABSTRACT, abstract_variables
from .tracing_process import trace_in_child


@contextmanager
def restore_environment() -> Iterator[None]:
    """Context that restores the environment variables at its end."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


# Errors of Keras for objects that cannot be serialized or deserialized.
NOT_SERIALIZABLE = (NotImplementedError, TypeError, ValueError, KeyError, AttributeError)


def trace_model(model: Any, *, options: WorkloadOptions, input_spec: SpecTree, target_spec: SpecTree) -> Workload:
    """Trace a `keras.Model` to a workload; see `trace_keras_model`.

    A copy without weights is built from the model's configuration. A model without a configuration is traced
    itself. On other backends than JAX, the configuration is traced in a child process.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise UsageError(f"{type(model).__name__} is not a keras.Model", hint="pass a model, or a MODEL string")
    if keras.backend.backend() != "jax":
        with restore_environment():
            return _trace_in_child(model, options)
    feed = FitInputs() if input_spec is None else FitInputs(x=input_spec, y=target_spec)
    with restore_environment(), abstract_variables() as works, _set_policy(options.precision):
        notes = () if works else (NOT_ABSTRACT,)
        subject = _copy(model, options)
        run = RunProperties(text=model.name, feed=feed, notes=notes)
        return assemble_workload(subject, run=run, options=options)


@contextmanager
def _set_policy(precision: str | None) -> Iterator[None]:
    """Set the dtype policy of new models in this context."""
    import keras

    before = keras.config.dtype_policy()
    if precision is not None:
        keras.config.set_dtype_policy(get_keras_policy(precision))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _copy(model: Any, options: WorkloadOptions) -> Any:
    import keras

    try:
        config = keras.saving.serialize_keras_object(model)
        if options.precision is not None:
            config = replace_dtype_policy(config, get_keras_policy(options.precision))
        known = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
        copy = keras.saving.deserialize_keras_object(config, custom_objects=known, safe_mode=False)
    except NOT_SERIALIZABLE as error:
        return _require_traceable(model, options, error)
    _keep_recomputation(model, copy)
    return copy


def _keep_recomputation(model: Any, copy: Any) -> None:
    """Give the layers of a copy the `keras.RematScope` of the model's, which no configuration holds.

    Layers correspond by their order: a configuration without names gives new ones to the copy.
    """
    for layer, twin in zip(model._flatten_layers(), copy._flatten_layers(), strict=False):
        if type(layer) is type(twin) and getattr(layer, "_remat_mode", None) is not None:
            object.__setattr__(twin, "_remat_mode", layer._remat_mode)


def _require_traceable(model: Any, options: WorkloadOptions, error: Exception) -> Any:
    """Return the model itself if tracing has no side effects on it."""
    if options.precision is not None or options.loss or options.optimizer or options.remat:
        raise UsageError(
            f"`{model.name}` cannot be copied, so it cannot be changed: {to_one_line(error)}",
            hint="build it with the intended precision, loss, optimizer and recomputation, or add a get_config() "
            "method",
        ) from error
    if options.mode == "train" and not model.compiled:
        raise UsageError(f"`{model.name}` is not compiled", hint="call `model.compile(...)` first") from error
    return model


def _trace_in_child(model: Any, options: WorkloadOptions) -> Workload:
    import keras

    backend = keras.backend.backend()
    try:
        config = json.dumps(keras.saving.serialize_keras_object(model))
    except NOT_SERIALIZABLE as error:
        raise UsageError(
            f"`{model.name}` needs the {backend} backend, which this version cannot trace: {to_one_line(error)}",
            hint="run with KERAS_BACKEND=jax, or add a get_config() method to the model",
        ) from error
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        path = Path(folder, "model.keras")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", config)
        answer = trace_in_child(str(path), base=Path(folder), options=options, argv=())
    return replace(Workload.from_json(answer["workload"]), model=model.name)

"""Construction of a Keras model from a function, an application or a preset."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import keras

from ...errors import GpuplanError, UsageError, near_names_hint
from ..errors import CaptureError, build_user_code_error
from ..reference import KERAS_HUB, Reference
from .keras_hub_preset import build_preset
from .saved_model import build_saved_model


def build_model(reference: Reference, *, base: Path, precision: str | None) -> Any:
    """Build the model of a reference other than a script; `precision` takes the place of a saved model's own."""
    if reference.kind == "application":
        return build_application(reference)
    if reference.kind == "saved_model" and reference.path is not None:
        return build_saved_model(reference.path, precision=precision)
    return build_function(reference, folder=base)


def build_application(reference: Reference) -> Any:
    """Build a model of `keras.applications`, or a preset of Keras Hub, without pretrained weights.

    Raises:
        UsageError: Unknown application (listing similar names), or invalid arguments.
    """
    if reference.module == KERAS_HUB:
        return build_preset(reference)
    rooms = keras.applications
    known = [name for name in dir(rooms) if name[:1].isupper() and callable(getattr(rooms, name))]
    if reference.name not in known:
        raise UsageError(
            f"unknown Keras application `{reference.name}`",
            hint=near_names_hint(reference.name, known, see_all="python -c 'help(\"keras.applications\")'"),
        )
    constructor = getattr(rooms, reference.name)
    arguments = {**reference.arguments, "weights": None}
    _check_arguments(constructor, arguments, name=reference.text)
    try:
        return constructor(**arguments)
    except (ValueError, TypeError) as error:
        raise build_user_code_error(error, name=reference.text, doing="cannot be built", folders=()) from error


def build_function(reference: Reference, *, folder: Path) -> Any:
    """Import a file or module, sought first in a folder, and call its function, which must return a Keras model.

    Raises:
        UsageError: Unknown module or function, invalid arguments, or a result that is not a model.
        CaptureError: The user's code failed.
    """
    home = reference.path.parent if reference.path is not None else folder
    sys.path.insert(0, str(home))
    try:
        function = _find_function(reference)
        _check_arguments(function, reference.arguments, name=reference.text)
        model = function(**reference.arguments)
    except GpuplanError:
        raise
    except SystemExit as error:
        raise CaptureError(f"{reference.text} ended the program (exit {error.code})") from error
    except Exception as error:
        folders = (str(home),)
        raise build_user_code_error(error, name=reference.text, doing="failed", folders=folders) from error
    if isinstance(model, keras.Model):
        return model
    raise UsageError(
        f"`{reference.text}` returned {type(model).__name__}, not a keras.Model",
        hint="name a function that returns the model, compiled or not",
    )


def _find_function(reference: Reference) -> Callable[..., Any]:
    module = _import_file(reference.path) if reference.path is not None else _import_module(reference)
    function = getattr(module, reference.name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    where = reference.path.name if reference.path is not None else reference.module
    raise UsageError(
        f"no function `{reference.name}` in `{where}`",
        hint=near_names_hint(reference.name, known, see_all=f"grep -n 'def ' {where}"),
    )


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import `{path.name}`", hint="give a Python file ending in `.py`")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_module(reference: Reference) -> ModuleType:
    try:
        return importlib.import_module(reference.module)
    except ModuleNotFoundError as error:
        if error.name is None or not reference.module.startswith(error.name):
            raise
        raise UsageError(
            f"no module `{error.name}` for `{reference.text}`",
            hint="run gpuplan in the folder that contains it, or install it in the environment of gpuplan",
        ) from None


def _check_arguments(function: Callable[..., Any], arguments: dict[str, Any], *, name: str) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise UsageError(
            f"`{name}`: {error}", hint=f"its signature is {signature}; pass arguments as `?name=value&name=value`"
        ) from None

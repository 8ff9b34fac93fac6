"""One-line errors for failures in the user's code."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from ..errors import GpuplanError
from .backend import OTHER_BACKENDS, TRACED_ON, find_own_backend
from .reference import SCRIPT_SUFFIXES, read_keras_names
from .script_text import NOTEBOOK, describe_missing_data, find_cell

WAY_OUT = "point gpuplan at a function that returns the model, as in `{name}:build_model`"
NOT_TRACED = "cannot be traced"
LONGEST_MESSAGE = 300
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ASIDE = re.compile(
    r"^in user code:|^ *File \".*\", line \d+.*\n.*$|\n\s*Arguments received by [\s\S]*|^ *See (the|https?:).*$",
    re.MULTILINE,
)
_INSTALLED = (os.path.join(os.path.dirname(os.__file__), ""), os.path.join(Path(__file__).parents[1], ""))
# Of what a backend influences: an error that passed through neither is the same on all.
_OF_BACKEND = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("keras", "jax"))
# TensorFlow re-raises JAX's error on reading a tracer from its text, which JAX's error class does not support.
RAISED_ANEW = "no attribute '_error_repr'"
# Errors of a backend given tensors of another.
WRONG_TENSORS = (TypeError, AttributeError, ValueError, NotImplementedError)


class CaptureError(GpuplanError):
    """The user's code ran, but did not reach a model that can be traced. Exit code 1."""


class BackendError(CaptureError):
    """The code may be traced on another backend, None for any; `reached` if a `fit()` before was traced."""

    def __init__(
        self, message: str, *, hint: str | None = None, backend: str | None, reached: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.backend, self.reached = backend, reached


class DeviceCountError(CaptureError):
    """The user's code needs another number of devices: `devices`; `takes_all` unless it states the number."""

    def __init__(self, message: str, *, hint: str | None = None, devices: int, takes_all: bool) -> None:
        super().__init__(message, hint=hint)
        self.devices, self.takes_all = devices, takes_all


def to_one_line(text: object) -> str:
    """Return a message as one line of bounded length: how it begins, and its last words, which hold the cause.

    Codes of a terminal are left out, and so are a traceback, what a layer was called with, and pages to read.
    """
    told = _ASIDE.sub("", _TERMINAL_CODES.sub("", str(text)))
    flat = " ".join(told.split())
    if len(flat) <= LONGEST_MESSAGE:
        return flat
    start = flat[: LONGEST_MESSAGE // 3].rpartition(" ")[0]
    return f"{start} … {flat[len(start) + 3 - LONGEST_MESSAGE :].partition(' ')[2]}"


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception as one line."""
    kind, message = f"{type(error).__name__}: ", to_one_line(error)
    return message if message.startswith(kind) else f"{kind}{message}"


def name_place(file: str, line: int) -> str:
    """Return a place in a file for the user; in a notebook, the cell and its line."""
    cell, line = find_cell(Path(file), line)
    return f"{os.path.basename(file)}, {f'cell {cell}, ' if cell else ''}line {line}"


def list_own_frames(start: BaseException | FrameType, folders: Sequence[str]) -> list[tuple[FrameType, int]]:
    """Return frames in the user's files, with their lines: of an exception, or those that led to a frame."""
    if isinstance(start, BaseException):
        walked = list(traceback.walk_tb(start.__traceback__))
    else:
        walked = list(traceback.walk_stack(start))[::-1]
    return [one for one in walked if any(is_own_file(one[0].f_code.co_filename, folder) for folder in folders)]


def find_own_places(start: BaseException | FrameType, folders: Sequence[str]) -> list[tuple[str, int]]:
    """Return file and line of the frames in the user's own files, the outermost first."""
    return [(frame.f_code.co_filename, line) for frame, line in list_own_frames(start, folders)]


def find_user_line(start: BaseException | FrameType, folders: Sequence[str]) -> str | None:
    """Return `file.py, line N` of the innermost frame in the user's folders."""
    places = find_own_places(start, folders)
    return name_place(*places[-1]) if places else None


def is_own_file(filename: str, folder: str) -> bool:
    """Return whether a file lies in a folder of the user's, and belongs to no installed package."""
    path = os.path.abspath(filename)
    if not filename.endswith(SCRIPT_SUFFIXES) or "site-packages" in path or path.startswith(_INSTALLED):
        return False
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def build_user_code_error(error: BaseException, *, name: str, doing: str, folders: Sequence[str]) -> CaptureError:
    """Convert an exception of the user's code of a reference to an error; `doing`: `failed before fit()`."""
    line = find_user_line(error, folders)
    where, script = line or name, name.split("?", 1)[0]
    backend = _find_required_backend(error, folders)
    if backend is not None:
        if isinstance(error, ModuleNotFoundError):
            way = f"`pip install 'gpuplan[{backend}]'`{suggest_function(script)} without it"
            return CaptureError(f"{where}: needs `{error.name}`, which is not installed", hint=way)
        message = f"{where}: needs the {backend} backend: {to_one_line(error)}"
        hint = "write that part with `keras.ops`, which runs on every backend, or as a Keras layer"
        return BackendError(message, hint=hint, backend=backend)
    if isinstance(error, SyntaxError):
        at = f" ({os.path.basename(error.filename)}, line {error.lineno})" if error.filename else ""
        message, hint = f"{where}: syntax error: {error.msg}{at}", "correct the syntax error, then run again"
    elif isinstance(error, ImportError) and (missing := _explain_missing(error, script)):
        message, hint = f"{where}: {to_one_line(error)}", missing
    else:
        own_frames, folder = list_own_frames(error, folders), folders[0] if folders else "."
        missing_data = describe_missing_data(error, own_frames, where=where, script=script, folder=folder)
        message, hint = missing_data or ("", _build_hint(error, script))
    if message:
        return CaptureError(message, hint=hint)
    at = f" ({line})" if line is not None else ""
    message, own = f"{name} {doing}{at}: {describe_error(error)}", find_own_backend()
    passed = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    is_of_keras = any(name in file for file in passed for name in _OF_BACKEND)
    if own is None or _is_of_surroundings(error) or is_raised_by_user(error) or not is_of_keras:
        return CaptureError(message, hint=hint)
    return BackendError(message, hint=hint, backend=own)


def is_raised_by_user(error: BaseException) -> bool:
    """Return whether a `raise` of the user's own code made an error: so it does on every backend."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any(is_own_file(one.filename, os.sep) and (one.line or "").startswith("raise ") for one in last)


def _is_of_surroundings(error: BaseException | None) -> bool:
    """Return whether files, variables or input are missing, on every backend; Keras raises it as another error."""
    while error is not None:
        if isinstance(error, OSError | EOFError) or (isinstance(error, KeyError) and _is_missing_variable(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _explain_missing(error: ImportError, script: str) -> str:
    """Return what to do about a module that could not be imported; empty where it is there and lacks a name."""
    name = (error.name or "").replace("tensorflow.keras", "keras").replace("tf_keras", "keras")
    removed = read_keras_names()["removed_modules"]
    place = next((place for place in removed if f"{name}.".startswith(f"{place}.")), None)
    if place is not None:
        return f"Keras 3 removed `{place}`; use `{removed[place]}`{suggest_function(script)}"
    package = name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package:
        return ""
    if package in sys.modules or find_spec(package) is not None:
        return f"the `{package}` that is installed has no `{name}`: another version of it had"
    return f"install `{error.name}` where gpuplan is installed{suggest_function(script)}"


def suggest_function(script: str) -> str:
    """Return the end of a hint: to name a function of a script; empty for other references."""
    return f", or {WAY_OUT.format(name=script)}" if script.endswith(".py") else ""


def _build_hint(error: BaseException, script: str) -> str:
    if not script.endswith(".py"):
        way = "run the cells before it in Jupyter" if script.endswith(NOTEBOOK) else "build it in Python"
        return f"{way} to see the full traceback"
    if isinstance(error, KeyError) and _is_missing_variable(error):
        return f"gpuplan withholds most environment variables; `GPUPLAN_SCRIPT_ENV={error.args[0]}` passes this on"
    if isinstance(error, EOFError):
        return f"it waits for input(), which gpuplan does not provide; {WAY_OUT.format(name=script)}"
    if "TPU" in str(error) or "TPUClusterResolver" in str(error):
        return f"no TPU is here: {WAY_OUT.format(name=script)}; `--accelerator TPU-v5e` then plans it on one"
    return f"run `python {script}` to see the full traceback, or {WAY_OUT.format(name=script)}"


def _is_missing_variable(error: KeyError) -> bool:
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return codes[-1:] == [type(os.environ).__getitem__.__code__]


def _find_required_backend(error: BaseException, folders: Sequence[str]) -> str | None:
    """Return the backend required by the code, if that caused the error."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return package if package in OTHER_BACKENDS and find_spec(package) is None else None
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for backend in OTHER_BACKENDS:
            ours = backend == os.environ.get(TRACED_ON)
            if f"{os.sep}site-packages{os.sep}{backend}{os.sep}" in frame.filename and not ours:
                return backend
    text = str(error).lower()
    named = next((b for b in OTHER_BACKENDS if f"{b} backend" in text or f"requires {b}" in text), None)
    if RAISED_ANEW in text:
        named = "tensorflow"
    if named is None and isinstance(error, WRONG_TENSORS):
        # By name in the innermost function; of a layer, whose `call` Keras leaves out, in the module that uses it.
        in_layer = "Exception encountered when calling" in str(error)
        for own, _ in list_own_frames(error, folders):
            for name in list(own.f_globals) if in_layer else own.f_code.co_names:
                package = getattr(own.f_globals.get(name), "__name__", "").split(".")[0]
                named = package if package in OTHER_BACKENDS else named
    return None if named == os.environ.get(TRACED_ON) else named

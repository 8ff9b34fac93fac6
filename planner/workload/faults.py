"""What goes wrong in the user's own code, said in one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

from ..errors import GpuplanError

__all__ = ["TRACED_ON", "BackendError", "CaptureError", "fault_in_user_code", "line_of_fault", "one_line"]

# The backend of the child that traces; the user's code may have set KERAS_BACKEND to something else.
TRACED_ON = "GPUPLAN_TRACED_ON"
OTHER_BACKENDS = ("tensorflow", "torch")
WAY_OUT = "point gpuplan at a function that returns the model, as in `{name}:build_model`"
LONGEST_MESSAGE = 300
# TensorFlow raises anew, from its text alone, what JAX says when its tracer is read, which JAX's error cannot be.
RAISED_ANEW = "no attribute '_error_repr'"
# What a backend raises when it is handed another one's tensors.
WRONG_TENSORS = (TypeError, AttributeError, ValueError, NotImplementedError)


class CaptureError(GpuplanError):
    """The user's code was run, and did not get as far as a model that can be traced. Exit code 1."""


class BackendError(CaptureError):
    """The user's code runs on another Keras backend only, which is installed: `backend`."""

    def __init__(self, message: str, *, hint: str | None = None, backend: str) -> None:
        super().__init__(message, hint=hint)
        self.backend = backend


def one_line(text: object) -> str:
    """Return the first lines of a message as one line of bounded length."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= LONGEST_MESSAGE else flat[: LONGEST_MESSAGE - 1] + "…"


def line_of_fault(error: BaseException, folders: Sequence[str]) -> str | None:
    """Return `file.py, line N` of the innermost frame that lies in one of the user's folders."""
    where = None
    for frame in traceback.extract_tb(error.__traceback__):
        if any(_inside(frame.filename, folder) for folder in folders):
            where = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    return where


def _inside(filename: str, folder: str) -> bool:
    path = os.path.abspath(filename)
    return path.startswith(folder.rstrip(os.sep) + os.sep) and "site-packages" not in path


def fault_in_user_code(
    error: BaseException, *, name: str, doing: str, folders: Sequence[str]
) -> CaptureError:
    """Turn whatever the user's code raised into one clear line with the way out.

    Args:
        error: What was raised.
        name: The reference, as the user gave it.
        doing: How far the code got (`failed before fit()`).
        folders: Folders of the user's own files, to name the line at fault.
    """
    line = line_of_fault(error, folders)
    where, script = line or name, name.split("?", 1)[0]
    backend = _foreign_backend(error, folders)
    if backend is not None:
        return _needs_backend(backend, error, where=where, name=script)
    if isinstance(error, SyntaxError):
        return CaptureError(f"{where}: {_syntax(error)}", hint="mend the syntax error, then run it again")
    if isinstance(error, ModuleNotFoundError):
        return CaptureError(
            f"{where}: {one_line(error)}",
            hint=f"install `{error.name}` where gpuplan is installed{_or_function(script)}",
        )
    at = f" ({line})" if line is not None else ""
    fault = f"{type(error).__name__}: {one_line(error)}"
    return CaptureError(f"{name} {doing}{at}: {fault}", hint=_way_out(error, script))


def _or_function(script: str) -> str:
    return f", or {WAY_OUT.format(name=script)}" if script.endswith(".py") else ""


def _way_out(error: BaseException, script: str) -> str:
    if not script.endswith(".py"):
        return "build it in Python to see the whole traceback"
    if isinstance(error, EOFError):
        return f"it waits for input(), which gpuplan does not give; {WAY_OUT.format(name=script)}"
    if isinstance(error, OSError):
        return f"if its data cannot be reached here, {WAY_OUT.format(name=script)} and pass `--samples`"
    return f"run `python {script}` to see all of it, or {WAY_OUT.format(name=script)}"


def _syntax(error: SyntaxError) -> str:
    at = f" ({os.path.basename(error.filename)}, line {error.lineno})" if error.filename else ""
    return f"syntax error: {error.msg}{at}"


def _foreign_backend(error: BaseException, folders: Sequence[str]) -> str | None:
    """Name the backend that the code turned out to need, if that is what went wrong."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").split(".")[0]
        return package if package in OTHER_BACKENDS else None
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for backend in OTHER_BACKENDS:
            ours = backend == os.environ.get(TRACED_ON)
            if f"{os.sep}site-packages{os.sep}{backend}{os.sep}" in frame.filename and not ours:
                return backend
    text = str(error).lower()
    named = next((b for b in OTHER_BACKENDS if f"{b} backend" in text or f"requires {b}" in text), None)
    if RAISED_ANEW in text:
        named = "tensorflow"
    found = named or (_used_at_fault(error, folders) if isinstance(error, WRONG_TENSORS) else None)
    return None if found == os.environ.get(TRACED_ON) else found


def _used_at_fault(error: BaseException, folders: Sequence[str]) -> str | None:
    """Name the backend that the user's own function uses by name where it failed, the innermost one.

    Keras takes a layer's `call` out of the traceback; what is left stands in the module that uses the layer.
    """
    found, in_layer = None, "Exception encountered when calling" in str(error)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if any(_inside(frame.f_code.co_filename, folder) for folder in folders):
            for name in list(frame.f_globals) if in_layer else frame.f_code.co_names:
                package = getattr(frame.f_globals.get(name), "__name__", "").split(".")[0]
                found = package if package in OTHER_BACKENDS else found
    return found


def _needs_backend(backend: str, error: BaseException, *, where: str, name: str) -> CaptureError:
    if isinstance(error, ModuleNotFoundError):
        return CaptureError(
            f"{where}: needs `{error.name}`, which is not installed",
            hint=f"`pip install 'gpuplan[{backend}]'`{_or_function(name)} without it",
        )
    return BackendError(
        f"{where}: needs the {backend} backend: {one_line(error)}",
        hint="write that part with `keras.ops`, which runs on every backend, or as a Keras layer",
        backend=backend,
    )

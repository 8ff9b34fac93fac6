"""Execution of an unmodified training script in the child process; its training calls are replaced."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import GpuplanError
from ..errors import (
    LAST_TRACE,
    WAY_OUT,
    BackendError,
    CaptureError,
    build_user_code_error,
    find_user_line,
    to_one_line,
)
from ..script_text import suggest_builders
from .training_calls import StandIns, replace_training_calls

PLACEHOLDER = "pretrained.weights.h5"


def follow_script(path: Path, *, text: str, argv: Sequence[str], calls: StandIns) -> str:
    """Run a script as `python script.py argv…` would, with its training calls replaced.

    Args:
        path: Path of the script.
        text: Reference as given by the user.
        argv: Arguments of the script.
        calls: What happens at its training calls.

    Returns:
        Why the script ended early after its first `fit()`; empty if it did not.

    Raises:
        CaptureError: The script failed or ended before `fit()`, or trains without it.
        GpuplanError: Raised by the first `fit()`.
    """
    faults: list[GpuplanError] = []
    undo = replace_training_calls(path.name, calls, faults)
    folders = (str(path.parent),)
    try:
        _run_as_main(path, text=text, argv=argv)
    except SystemExit as error:
        _raise_before_fit(faults, calls)
        if calls.reached:
            return "" if error.code in (0, None) else f"it ended with exit code {error.code}"
        raise _build_end_error(text, path, code=error.code, argv=argv) from error
    except Exception as error:
        _raise_before_fit(faults, calls)
        if calls.reached:
            _raise_for_other_backend(error, text, folders)
            return _describe_failure(error, folders)
        if isinstance(error, GpuplanError):
            raise
        raise build_user_code_error(error, name=text, doing="failed before fit()", folders=folders) from error
    finally:
        undo()
    _raise_before_fit(faults, calls)
    if not calls.reached:
        raise _build_end_error(text, path, code=0, argv=argv)
    return ""


def _raise_for_other_backend(error: Exception, text: str, folders: Sequence[str]) -> None:
    """Raise BackendError where the rest of the script may run on another backend."""
    fault = build_user_code_error(error, name=text, doing="failed", folders=folders)
    if isinstance(fault, BackendError) and LAST_TRACE not in os.environ:
        fault.reached = True
        raise fault from error


def _describe_failure(error: Exception, folders: Sequence[str]) -> str:
    line = find_user_line(error, folders)
    at = f" at {line}" if line else ""
    return f"it failed{at} ({type(error).__name__}: {to_one_line(error)})"


def _raise_before_fit(faults: list[GpuplanError], calls: StandIns) -> None:
    """Raise the first error of a training call, which the script may have caught.

    After the first `fit()`, only another backend is worth a new start.
    """
    for fault in faults:
        if not calls.reached or isinstance(fault, BackendError):
            raise fault


def _run_as_main(path: Path, *, text: str, argv: Sequence[str]) -> None:
    module = ModuleType("__main__")
    vars(module).update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [text, *argv]
    sys.path.insert(0, str(path.parent))
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # the user's script, as requested


def _build_end_error(text: str, path: Path, *, code: object, argv: Sequence[str]) -> CaptureError:
    if code not in (0, None):
        hint = f"pass its arguments after `--`, as in `gpuplan estimate {text} -- --data folder`"
        given = f" with the arguments {list(argv)}" if argv else " without arguments"
        return CaptureError(f"{text} ended (exit {code}) before fit(), run{given}", hint=hint)
    builders = suggest_builders(text, path)
    return CaptureError(
        f"{text} ended without calling fit()",
        hint=f"to plan a model that it defines, type {builders}"
        if builders
        else f"if it trains with a loop of its own, {WAY_OUT.format(name=path.name)}",
    )


def skip_pretrained_weights() -> Callable[[], bool]:
    """Make Keras neither download nor read pretrained weights, whose values do not affect the time.

    Returns:
        A function that returns whether any were skipped.
    """
    import keras
    from keras.src.utils import file_utils

    skipped: list[str] = []
    get_file = file_utils.get_file

    def without_weights(fname: Any = None, origin: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "keras-applications" not in str(origin):
            return get_file(fname, origin, *args, **kwargs)
        skipped.append(str(fname))
        return os.path.join(os.sep, "nowhere", PLACEHOLDER)

    def load_weights(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        skipped.append(str(filepath))

    file_utils.get_file = without_weights
    keras.Model.load_weights = load_weights
    return lambda: bool(skipped)

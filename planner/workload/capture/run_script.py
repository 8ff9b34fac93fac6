"""Execution of an unmodified training script until its first `fit()`, in the child process."""

from __future__ import annotations

import builtins
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ...errors import GpuplanError
from ..errors import WAY_OUT, CaptureError, build_user_code_error

__all__ = ["FitCall", "run_until_fit", "skip_pretrained_weights"]

FitCall = Callable[[Any, dict[str, Any]], NoReturn]
PLACEHOLDER = "pretrained.weights.h5"


def run_until_fit(path: Path, *, text: str, argv: Sequence[str], on_fit: FitCall) -> NoReturn:
    """Run a script as `python script.py argv…` would, until it calls `fit()`.

    Args:
        path: Path of the script.
        text: Reference as given by the user.
        argv: Arguments of the script.
        on_fit: Callback for the model and the arguments of `fit()` by name; must end the process.

    Raises:
        CaptureError: The script failed, ended, or trains without `fit()`.
        GpuplanError: Raised by `on_fit`.
    """
    faults: list[GpuplanError] = []
    undo = _patch_training(path.name, on_fit, faults)
    try:
        _run_as_main(path, text=text, argv=argv)
    except GpuplanError:
        raise
    except SystemExit as error:
        _raise_first(faults)
        raise _build_end_error(text, path.name, code=error.code, argv=argv) from error
    except Exception as error:
        _raise_first(faults)
        folders = (str(path.parent),)
        raise build_user_code_error(error, name=text, doing="failed before fit()", folders=folders) from error
    finally:
        undo()
    _raise_first(faults)
    raise _build_end_error(text, path.name, code=0, argv=argv)


def _raise_first(faults: list[GpuplanError]) -> None:
    """Raise the first error of a training call, which the script may have caught."""
    if faults:
        raise faults[0]


def _run_as_main(path: Path, *, text: str, argv: Sequence[str]) -> None:
    module = ModuleType("__main__")
    vars(module).update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [text, *argv]
    sys.path.insert(0, str(path.parent))
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # the user's script, as requested


def _build_end_error(text: str, script: str, *, code: object, argv: Sequence[str]) -> CaptureError:
    if code not in (0, None):
        hint = f"pass its arguments after `--`, as in `gpuplan estimate {text} -- --data folder`"
        given = f" with the arguments {list(argv)}" if argv else " without arguments"
        return CaptureError(f"{text} ended (exit {code}) before fit(), run{given}", hint=hint)
    return CaptureError(
        f"{text} ended without calling fit()",
        hint=f"if it trains with a loop of its own or only defines models, {WAY_OUT.format(name=script)}",
    )


# --- replacements of training calls -----------------------------------------------------------------------


def _patch_training(script: str, on_fit: FitCall, faults: list[GpuplanError]) -> Callable[[], None]:
    """Replace `fit()` by the capture and other training calls by errors; return a function that restores them."""
    import keras

    undo: list[tuple[type, str, Any]] = []

    def restore() -> None:
        while undo:
            owner, name, original = undo.pop()
            setattr(owner, name, original) if original is not None else delattr(owner, name)

    def replace(owner: type, name: str, replacement: Any) -> None:
        undo.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, replacement)

    signature = inspect.signature(keras.Model.fit)

    def fit(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        restore()
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        try:
            on_fit(self, dict(bound.arguments))
        except GpuplanError as error:
            faults.append(error)
            raise

    replace(keras.Model, "fit", fit)
    replace(keras.Model, "train_on_batch", _build_refusal("train_on_batch()", script, faults))
    for name in ("apply", "stateless_apply"):
        replace(keras.optimizers.Optimizer, name, _build_refusal("a loop of its own", script, faults))
    return restore


def _build_refusal(how: str, script: str, faults: list[GpuplanError]) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        error = CaptureError(f"{script} trains with {how}, not with fit()", hint=WAY_OUT.format(name=script))
        faults.append(error)
        raise error

    return refuse


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

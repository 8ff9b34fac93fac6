"""Execution of an unmodified training script in the child process; its training calls are replaced."""

from __future__ import annotations

import builtins
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from ...errors import GpuplanError
from ..errors import (
    LAST_TRACE,
    BackendError,
    CaptureError,
    build_user_code_error,
    describe_error,
    find_own_places,
    find_user_line,
    name_place,
)
from ..script_text import NOTEBOOK, can_train_after, read_source, suggest_builders
from .for_loops import LOOP, compile_with_loops, iterate
from .replaced_calls import replace_training_calls
from .training_calls import StandIns
from .training_loops import LoopGivenUpError
from .watch import call_after_import

PLACEHOLDER = "pretrained.weights.h5"


class EarlyEnd(NamedTuple):
    """How a script ended after its first `fit()`: why, and whether it may have gone on to train."""

    why: str
    cuts: bool


def follow_script(path: Path, *, text: str, argv: Sequence[str], calls: StandIns) -> EarlyEnd | None:
    """Run a script as `python script.py argv…` would, with its training calls replaced.

    Args:
        path: Path of the script.
        text: Reference as given by the user.
        argv: Arguments of the script.
        calls: What happens at its training calls.

    Returns:
        How the script ended early after its first `fit()`; None if it did not.

    Raises:
        GpuplanError: The script failed or ended before `fit()`, trains without it, or its first `fit()` raised it.
    """
    faults: list[GpuplanError] = []
    undo = replace_training_calls(path.name, calls, faults)
    _skip_pictures()
    folders = (str(path.parent),)
    try:
        _run_as_main(path, text=text, argv=argv, named=calls.named)
    except SystemExit as error:
        _raise_before_fit(faults, calls)
        if calls.reached:
            if error.code in (0, None):
                return None
            why = f"it ended with exit code {error.code}"
            return EarlyEnd(why, can_train_after(find_own_places(error, folders)))
        raise _build_end_error(text, path, code=error.code, argv=argv) from error
    except Exception as error:
        _raise_before_fit(faults, calls)
        if calls.reached:
            _raise_for_other_backend(error, text, folders)
            line = find_user_line(error, folders)
            why = f"it failed{f' at {line}' if line else ''} ({describe_error(error)})"
            return EarlyEnd(why, can_train_after(find_own_places(error, folders)))
        if isinstance(error, GpuplanError):
            raise
        raise build_user_code_error(error, name=text, doing="failed before fit()", folders=folders) from error
    except LoopGivenUpError as error:
        calls.give_up_loop()
        places = find_own_places(error, folders)
        why = f"a loop at {name_place(*places[-1])}, which runs for long"
        return EarlyEnd(why, can_train_after(places, is_loop_left=True))
    finally:
        undo()
    _raise_before_fit(faults, calls)
    if not calls.reached:
        raise _build_end_error(text, path, code=0, argv=argv)
    return None


def _raise_for_other_backend(error: Exception, text: str, folders: Sequence[str]) -> None:
    """Raise BackendError where the rest of the script may run on another backend."""
    fault = build_user_code_error(error, name=text, doing="failed", folders=folders)
    if isinstance(fault, BackendError) and LAST_TRACE not in os.environ:
        fault.reached = True
        raise fault from error


def _raise_before_fit(faults: list[GpuplanError], calls: StandIns) -> None:
    """Raise the first error of a training call, which the script may have caught.

    After the first `fit()`, only another backend is worth a new start.
    """
    for fault in faults:
        if not calls.reached or isinstance(fault, BackendError):
            raise fault


def _run_as_main(path: Path, *, text: str, argv: Sequence[str], named: dict[str, None]) -> None:
    module = ModuleType("__main__")
    vars(module).update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [text, *argv]
    sys.path.insert(0, str(path.parent))
    _stand_in_for_kinetic(named)
    source: str | bytes = path.read_bytes()
    vars(module)[LOOP] = iterate
    if path.suffix == NOTEBOOK:
        source = read_source(path)
        linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
        vars(module).update(display=_do_nothing, get_ipython=_do_nothing)
    exec(compile_with_loops(source, str(path)), vars(module))  # the user's script, as requested


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Show nothing."""


def _follow_kinetic(module: Any, named: dict[str, None]) -> None:
    """Let functions under `@kinetic.run` run here, and keep the accelerators that they name; nothing is sent."""

    def run(accelerator: Any = "tpu-v5e-1", *args: Any, spot: bool = False, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            @wraps(function)
            def call(*given: Any, **kept: Any) -> Any:
                named[f"{accelerator}:spot" if spot else str(accelerator)] = None
                return function(*given, **kept)

            def call_for_each(inputs: Any, **how: Any) -> Any:
                found = [call(**one) if isinstance(one, dict) else call(*_list_arguments(one)) for one in inputs]
                return SimpleNamespace(wait=_do_nothing, results=lambda **how: found)

            call.run_async = lambda *given, **kept: _build_handle(call(*given, **kept))  # type: ignore[attr-defined]
            call.run_async_map = call_for_each  # type: ignore[attr-defined]
            return call

        return decorate

    module.run = run
    module.Data = lambda *args, **options: args[0] if args else None


def _list_arguments(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else (given,)


def _build_handle(found: Any) -> Any:
    return SimpleNamespace(job_id="", result=lambda *how, **more: found)


def _stand_in_for_kinetic(named: dict[str, None]) -> None:
    """Follow kinetic; where it is not installed, a module with what scripts use of it takes its place."""
    if find_spec("kinetic") is None:
        module = ModuleType("kinetic")
        for name in ("attach", "attach_batch", "list_jobs"):
            setattr(module, name, _do_nothing)
        sys.modules["kinetic"] = module
    call_after_import("kinetic", partial(_follow_kinetic, named=named))


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
        else f"if it trains otherwise, write a function that returns its model, and type `{path.name}:FUNCTION`",
    )


def _skip_pictures() -> None:
    """Let `plot_model` draw nothing."""
    import keras

    for module in (keras.utils, keras.src.utils, keras.src.utils.model_visualization):
        vars(module).update(plot_model=_do_nothing)


def skip_pretrained_weights() -> Callable[[], bool]:
    """Make Keras neither download nor read pretrained weights, whose values do not affect the time.

    Return a function that tells whether any were skipped.
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

"""Following of an unmodified script in the child process: its run, what its training calls do, and the answer."""

from __future__ import annotations

import builtins
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import keras

from ...errors import GpuplanError
from ..backend import LAST_TRACE
from ..errors import (
    BackendError,
    CaptureError,
    build_user_code_error,
    describe_error,
    find_own_places,
    find_user_line,
    name_place,
)
from ..script_text import NOTEBOOK, can_train_after, read_source, suggest_builders
from .phases import EarlyEnd
from .replaced_calls import replace_training_calls
from .training_calls import StandIns
from .training_loops import LOOP, LoopGivenUpError, TimedLoop, compile_with_loops, iterate
from .watch import call_after_import

PLACEHOLDER = "pretrained.weights.h5"


def follow_script(path: Path, *, text: str, argv: Sequence[str], calls: StandIns) -> EarlyEnd | None:
    """Run a script, named `text` by the user, as `python script.py argv…` would, with its training calls replaced.

    Returns:
        How the script ended early after its first `fit()`; None if it did not.

    Raises:
        GpuplanError: The script failed or ended before `fit()`, trains without it, or its first `fit()` raised it.
    """
    faults: list[GpuplanError] = []
    undo = replace_training_calls(path.name, calls, faults)
    for module in (keras.utils, keras.src.utils, keras.src.utils.model_visualization):
        vars(module).update(plot_model=_do_nothing)
    folders = (str(path.parent),)
    error: BaseException = SystemExit(0)  # as at the end of its text
    try:
        _run_as_main(path, text=text, argv=argv, named=calls.named)
    except (Exception, SystemExit) as raised:
        error = raised
    except LoopGivenUpError as raised:
        calls.give_up_loop()
        places = find_own_places(raised, folders)
        why = f"a loop at {name_place(*places[-1])}, which runs for long"
        return EarlyEnd(why, can_train_after(places, is_loop_left=True))
    finally:
        undo()
    for fault in faults:  # though the script caught it; after a `fit()`, what another backend may mend
        if not calls.reached or isinstance(fault, BackendError):
            raise fault
    if not calls.reached:
        if isinstance(error, SystemExit):
            raise _build_end_error(text, path, end=error, argv=argv) from error
        if isinstance(error, GpuplanError):
            raise error
        raise build_user_code_error(error, name=text, doing="failed before fit()", folders=folders) from error
    code = error.code if isinstance(error, SystemExit) else ""
    if code in (0, None):
        return None
    why = f"it ended with exit code {code}" if code else _describe_failure(error, text, folders)
    return EarlyEnd(why, can_train_after(find_own_places(error, folders)))


def _describe_failure(error: BaseException, text: str, folders: Sequence[str]) -> str:
    """Return how a script failed; BackendError where the rest of it may run on another backend."""
    fault = build_user_code_error(error, name=text, doing="failed", folders=folders)
    if isinstance(fault, BackendError) and LAST_TRACE not in os.environ:
        fault.reached = True
        raise fault from error
    line = find_user_line(error, folders)
    return f"it failed{f' at {line}' if line else ''} ({describe_error(error)})"


def _run_as_main(path: Path, *, text: str, argv: Sequence[str], named: dict[str, None]) -> None:
    module = ModuleType("__main__")
    vars(module).update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [text, *argv]
    sys.path.insert(0, str(path.parent))
    if find_spec("kinetic") is None:  # a module with what scripts use of it
        kinetic = ModuleType("kinetic")
        vars(kinetic).update(dict.fromkeys(("attach", "attach_batch", "list_jobs"), _do_nothing))
        sys.modules["kinetic"] = kinetic
    call_after_import("kinetic", partial(_follow_kinetic, named=named))
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

            def call_async(*given: Any, **kept: Any) -> Any:
                found = call(*given, **kept)
                return SimpleNamespace(job_id="", result=lambda *how, **more: found)

            def call_for_each(inputs: Any, **how: Any) -> Any:
                listed = [one if isinstance(one, dict | list | tuple) else (one,) for one in inputs]
                found = [call(**one) if isinstance(one, dict) else call(*one) for one in listed]
                return SimpleNamespace(wait=_do_nothing, results=lambda **how: found)

            vars(call).update(run_async=call_async, run_async_map=call_for_each)
            return call

        return decorate

    module.run = run
    module.Data = lambda *args, **options: args[0] if args else None


def _build_end_error(text: str, path: Path, *, end: SystemExit, argv: Sequence[str]) -> CaptureError:
    if end.code not in (0, None):
        # Argparse says what it lacks as it ends a script; an option gets a word for its value.
        frames = (frame for frame, _ in traceback.walk_tb(end.__traceback__) if frame.f_code.co_name == "error")
        said = next((str(frame.f_locals.get("message")) for frame in frames), "")
        asked = said.partition("arguments are required: ")[2].split(", ")
        names = [name.rpartition("/")[2] for name in asked if name]
        lacking = [f"{name} {name.lstrip('-').upper()}" if name[0] == "-" else name.upper() for name in names]
        needed = " ".join([*argv, *(lacking or ["--data folder"])])
        hint = f"pass its arguments after `--`, as in `gpuplan estimate {text} -- {needed}`"
        given = f" with the arguments {list(argv)}" if argv else " without arguments"
        return CaptureError(f"{text} ended (exit {end.code}) before fit(), run{given}", hint=hint)
    builders = suggest_builders(text, path)
    return CaptureError(
        f"{text} ended without calling fit()",
        hint=f"to plan a model that it defines, type {builders}"
        if builders
        else f"if it trains otherwise, write a function that returns its model, and type `{path.name}:FUNCTION`",
    )


def skip_pretrained_weights() -> Callable[[], bool]:
    """Make Keras neither download nor read pretrained weights, whose values do not affect the time.

    Return a function that tells whether any were skipped.
    """
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


def follow_one_fit(
    path: Path,
    use: Callable[[Any, dict[str, Any]], NoReturn],
    *,
    text: str,
    argv: Sequence[str],
    fit_call: int,
    folder: Path | None = None,
    loop: TimedLoop | None = None,
) -> NoReturn:
    """Run a script until one of its training calls, whose model is used; those before return stand-ins.

    `use` takes the model and the arguments of the call after `fit_call` others, and must end the process or raise.
    `loop` times a loop of the script's own; without it such a loop is refused. The rest is as for
    `follow_script` and `StandIns`.

    Raises:
        CaptureError: The script failed, or ended before the call.
    """
    calls = StandIns(own=path.parent, folder=folder, use=use, fit_call=fit_call)
    if loop is not None:
        calls.loops, loop.begin = loop, calls.begin
    follow_script(path, text=text, argv=argv, calls=calls)
    raise CaptureError(
        f"{text} called fit() {calls.count} times, fewer than when it was first traced",
        hint="run the command again",
    )

"""Following of an unmodified script in the child process: its run, what its training calls do, and the answer."""

from __future__ import annotations

import builtins
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, NamedTuple, NoReturn

import keras

from ...errors import GpuplanError
from ..build.fit_inputs import FitInputs, read_fit_inputs
from ..errors import (
    LAST_TRACE,
    NOT_TRACED,
    BackendError,
    CaptureError,
    build_user_code_error,
    describe_error,
    find_own_places,
    find_user_line,
    name_place,
    to_one_line,
)
from ..model import Workload
from ..script_text import NOTEBOOK, can_train_after, read_source, suggest_builders
from .feeding import DataCounter, InputMeter
from .phases import PhaseRecorder
from .replaced_calls import replace_training_calls
from .timed_loop import TimedLoop
from .training_calls import StandIns, find_early_end
from .training_loops import LOOP, LoopGivenUpError, LoopStep, TrainingLoops, compile_with_loops, end_loops, iterate
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
        raise _build_end_error(text, path, end=error, argv=argv) from error
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
        raise _build_end_error(text, path, end=SystemExit(0), argv=argv)
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


def _build_end_error(text: str, path: Path, *, end: SystemExit, argv: Sequence[str]) -> CaptureError:
    if end.code not in (0, None):
        needed = " ".join([*argv, *(_list_missing_arguments(end) or ["--data folder"])])
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


def _list_missing_arguments(end: SystemExit) -> list[str]:
    """Return the arguments that argparse asks for as it ends a script, options with a word for their value."""
    frames = (frame for frame, _ in traceback.walk_tb(end.__traceback__) if frame.f_code.co_name == "error")
    said = next((str(frame.f_locals.get("message")) for frame in frames), "")
    asked = said.partition("arguments are required: ")[2]
    names = [name.rpartition("/")[2] for name in asked.split(", ") if name]
    return [f"{name} {name.lstrip('-').upper()}" if name.startswith("-") else name.upper() for name in names]


def _skip_pictures() -> None:
    """Let `plot_model` draw nothing."""
    for module in (keras.utils, keras.src.utils, keras.src.utils.model_visualization):
        vars(module).update(plot_model=_do_nothing)


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


# --- phases ---------------------------------------------------------------------------------------------------

LONGEST_REST_S = 60.0  # from one `fit()` to the next, until the rest of a script is left out
WATCH_S = 0.5
SAVE_EVERY_S = 2.0
LINES_NAMED = 3  # that depend on a metric [-]


class ScriptFollower(StandIns):
    """Training calls of a script that is traced phase by phase.

    Whatever ends the process after the first `fit()`, the phases so far are in the result file.
    """

    loops: TrainingLoops

    def __init__(
        self,
        trace: Callable[[Any, FitInputs, dict[str, Any]], Workload],
        *,
        assemble: Callable[[LoopStep], Workload],
        own: Path,
        folder: Path,
        save: Callable[[dict[str, Any]], None],
        inputs: InputMeter | None = None,
    ) -> None:
        """Start before the first call.

        Args:
            trace, inputs: As for `PhaseRecorder`.
            assemble: Function that makes a workload of a step of a loop.
            own, folder: As for `StandIns`.
            save: Function that writes the answer.
        """
        super().__init__(own=own, folder=folder)
        self._save = save
        self._recorder = PhaseRecorder(trace, inputs)
        self._counter = DataCounter()
        self._saved_s = self._rested_s = time.monotonic()
        self._busy, self._is_watched = 0, False
        self._trace, self._assemble = trace, assemble
        self.loops = TrainingLoops(str(own), self._add_loop, has_trained=lambda: self.reached)

    # --- calls of the script ------------------------------------------------------------------------------

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Add a phase, and return its history."""
        with self._working():
            is_new = False
            try:
                feed = self._counter.complete(read_fit_inputs(arguments), arguments)
                is_new = self._recorder.add(model, feed, arguments, fit_call=self.count, calls=calls)
            except Exception as error:  # the data is the user's code
                self._leave_out("fit()", error)
            self._note_early_end(arguments)
            history = super().fit(model, arguments)
            self._start_watch()
            if is_new or time.monotonic() - self._saved_s > SAVE_EVERY_S:
                self.save(partial=True)
            return history

    def train_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Add a step, as often as its loop runs, and return unknown metrics."""
        runs = self.loops.count(self.loops.find_place())
        with self._working():
            feed = read_fit_inputs(arguments)
            key = id(model), str(feed), len(model.trainable_variables)
            self._add_runs(key, lambda: self._trace(model, feed, arguments), runs)
        return super().train_on_batch(model, arguments)

    def _add_loop(self, place: object, build: Callable[[], LoopStep], runs: int) -> None:
        """Add a step of a loop of the script's own."""
        with self._working():
            self._add_runs(place, lambda: self._assemble(build()), runs)
            self.begin()

    def _add_runs(self, key: object, build: Callable[[], Workload], runs: int) -> None:
        try:
            is_new = self._recorder.add_runs(key, build, fit_call=self.count, runs=runs)
        except GpuplanError as error:
            self._leave_out("the loop", error)
            return
        if is_new:
            self._start_watch()
            self.save(partial=True)

    def _leave_out(self, what: str, error: Exception) -> None:
        """Note a call that cannot be planned; raise its error if it is the first, or may be on another backend."""
        if not self.reached or isinstance(error, BackendError):
            raise error
        cause = str(error) if isinstance(error, GpuplanError) else describe_error(error)
        cause = cause.partition(f"{NOT_TRACED}: ")[2] or cause
        self._recorder.unplanned[f"{self._line(what)} is not: {to_one_line(cause)}"] = None

    def give_up_loop(self) -> None:
        """Note that a loop was left, so that its steps are unknown."""
        self._recorder.forget_runs()
        self._note("the steps of a loop of the script cannot be counted: give them by `--steps`")

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return unknown metrics."""
        self._count_passes("evaluate", model, arguments)
        return super().evaluate(model, arguments)

    def predict(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return a stand-in; where its shape is unknown, what the untrained model predicts."""
        self._count_passes("predict", model, arguments)
        with suppress(Exception):
            return super().predict(model, arguments)
        return model.predict(*[value for name, value in arguments.items() if name != "self"])

    def search(self, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
        """Take a search of KerasTuner as its trials, and note so."""
        note = super().search(tuner, arguments, options)
        self._note(note)
        return note

    # --- answer -------------------------------------------------------------------------------------------

    def save(self, *, partial: bool, ended: EarlyEnd | None = None) -> None:
        """Write the phases so far; `partial`: the script goes on, `ended`: it ended early."""
        self._saved_s = time.monotonic()
        notes = tuple(list(self._use.notes.values())[:LINES_NAMED])
        if self._protection is not None:
            notes += self._protection.find_notes()
        if ended is not None:
            followed = f"the script was followed until {ended.why}"
            if ended.cuts:
                self._recorder.unplanned[followed] = None
            else:
                notes += (f"{followed}; nothing after it trains",)
        workload = self._recorder.build_workload(notes=notes)
        workload = replace(workload, named_machines=tuple(self.named))
        self._save({"workload": workload.to_json(), "partial": partial})

    def _count_passes(self, kind: Literal["evaluate", "predict"], model: Any, arguments: dict[str, Any]) -> None:
        """Add the forward passes of a call; a note where they cannot be counted."""
        try:
            feed = read_fit_inputs({**arguments, "steps_per_epoch": arguments.get("steps")})
            self._recorder.add_passes(kind, model, feed)
        except Exception as error:  # the data is the user's code
            self._note(f"{self._line(f'{kind}()')} is not counted: {to_one_line(error)}")

    def _note(self, note: str) -> None:
        self._recorder.notes[note] = None

    def _note_early_end(self, arguments: dict[str, Any]) -> None:
        with suppress(Exception):
            name = find_early_end(arguments)
            if name is not None:
                self._note(f"{name} may end training earlier: its epochs are an upper bound")

    def _line(self, what: str) -> str:
        """Return a call with its line in the user's files."""
        line = find_user_line(sys._getframe(1), (str(self.own),))
        return what if line is None else f"{what} at {line}"

    # --- rest of the script -------------------------------------------------------------------------------

    @contextmanager
    def _working(self) -> Any:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._rested_s = time.monotonic()

    def _start_watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self._busy or time.monotonic() - self._rested_s < LONGEST_REST_S:
            time.sleep(WATCH_S)
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        places = [] if frame is None else find_own_places(frame, (str(self.own),))
        at = name_place(*places[-1]) if places else "a line"
        why = f"{at}, where {LONGEST_REST_S:.0f} s had passed without another fit()"
        self.save(partial=False, ended=EarlyEnd(why, can_train_after(places)))
        os._exit(0)


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

    Args:
        path, text, argv, folder: As for `follow_script` and `StandIns`.
        use: Function that receives the model and the arguments of `fit()`; must end the process or raise.
        fit_call: Number of `fit()` calls before the one to use [-].
        loop: What times a loop of the script's own; None refuses it.

    Raises:
        CaptureError: The script failed, or ended before the call.
    """
    calls = _SingleFit(use, fit_call, own=path.parent, folder=folder)
    if loop is not None:
        calls.loops, loop.begin = loop, calls.begin
    follow_script(path, text=text, argv=argv, calls=calls)
    raise CaptureError(
        f"{text} called fit() {calls.count} times, fewer than when it was first traced",
        hint="run the command again",
    )


class _SingleFit(StandIns):
    def __init__(self, use: Callable[[Any, dict[str, Any]], NoReturn], fit_call: int, **where: Any) -> None:
        super().__init__(**where)
        self._use_model, self._fit_call = use, fit_call

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Use the model, or return a stand-in of the history."""
        self._use_if_wanted(model, arguments)
        return super().fit(model, arguments)

    def train_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Use the model, or return stand-ins of the metrics."""
        self._use_if_wanted(model, arguments)
        end_loops()
        return super().train_on_batch(model, arguments)

    def _use_if_wanted(self, model: Any, arguments: dict[str, Any]) -> None:
        if self.count == self._fit_call:
            self._use_model(model, arguments)

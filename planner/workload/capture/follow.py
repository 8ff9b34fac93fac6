"""Following of a script in the child process: what its training calls do, and the answer that they make."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NoReturn

from ...errors import GpuplanError
from ..build.fit_inputs import FitInputs, read_fit_inputs
from ..errors import (
    NOT_TRACED,
    BackendError,
    CaptureError,
    describe_error,
    find_own_places,
    find_user_line,
    name_place,
    to_one_line,
)
from ..model import Workload
from ..script_text import can_train_after
from .feeding import DataCounter, InputMeter
from .for_loops import end_loops
from .phases import PhaseRecorder
from .run_script import EarlyEnd, follow_script
from .training_calls import StandIns, find_early_end
from .training_loops import LoopStep, TrainingLoops

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
        trace: Callable[[Any, FitInputs, int, dict[str, Any]], Workload],
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
        self.loops = TrainingLoops(str(own), self._add_loop)

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
            self._add_runs(key, lambda: self._trace(model, feed, 1, arguments), runs)
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
) -> NoReturn:
    """Run a script until one of its training calls, whose model is used; those before return stand-ins.

    Args:
        path, text, argv, folder: As for `follow_script` and `StandIns`.
        use: Function that receives the model and the arguments of `fit()`; must end the process or raise.
        fit_call: Number of `fit()` calls before the one to use [-].

    Raises:
        CaptureError: The script failed, or ended before the call.
    """
    calls = _SingleFit(use, fit_call, own=path.parent, folder=folder)
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


USUAL_DEVICES = 8  # of a large machine: for a layout that divides however many devices it finds [-]

NeedDevices = Callable[[int, bool], NoReturn]


def follow_mesh(need: NeedDevices, *, given: bool) -> None:
    """Let `keras.distribution` find this process's devices as those of any type, and report what a mesh needs.

    `need` ends the process, so that it is started again with a number of devices; its second argument tells
    whether the script takes all that it finds. `given`: the number was set for this process.
    """
    from keras.src.backend import distribution_lib

    every = distribution_lib.list_devices
    distribution_lib.list_devices = lambda device_type=None: _FoundDevices(every(), need)
    if hasattr(distribution_lib, "get_device_count"):
        distribution_lib.get_device_count = lambda device_type=None: len(every())
    if hasattr(distribution_lib, "_to_backend_device"):
        distribution_lib._to_backend_device = _find_device
    _watch_mesh(need)
    if not given:
        _watch_layout(need)


class _FoundDevices(list[str]):
    """Names of the devices that were found; those beyond the last are asked for when they are taken."""

    def __init__(self, names: list[str], need: NeedDevices) -> None:
        super().__init__(names)
        self._need = need

    def __getitem__(self, index: Any) -> Any:
        last = index.stop if isinstance(index, slice) else index + 1
        if last is not None and last > len(self):
            self._need(last, False)
        return super().__getitem__(index)


def _find_device(name: Any) -> Any:
    """Return a device of this process by a name like `gpu:1`, whatever its type."""
    import jax

    return name if isinstance(name, jax.Device) else jax.devices()[int(str(name).partition(":")[2] or 0)]


def _check_before(owner: Any, name: str, check: Callable[..., None]) -> None:
    """Call a function with the arguments of another one before it."""
    function = getattr(owner, name)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, call)


def _watch_mesh(need: NeedDevices) -> None:
    """Ask for as many devices as a mesh has, of Keras or of `jax.make_mesh`."""
    import jax
    import keras

    def check_mesh(self: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        import numpy as np

        found, wanted = jax.device_count(), math.prod(shape)
        taken = found if devices is None else np.size(devices)
        if wanted == 0 and found < USUAL_DEVICES:  # a share of the devices: none of one
            need(USUAL_DEVICES, True)
        if wanted > 0 and (wanted > found or (wanted != taken and taken == found)):
            need(wanted, False)

    def check_jax_mesh(axis_shapes: Any, *how: Any, devices: Any = None, **options: Any) -> None:
        wanted = math.prod(axis_shapes)
        if devices is None and wanted > jax.device_count():
            need(wanted, False)

    _check_before(keras.distribution.DeviceMesh, "__init__", check_mesh)
    _check_before(jax, "make_mesh", check_jax_mesh)


def _watch_layout(need: NeedDevices) -> None:
    """Ask for several devices where variables would be divided over the single one that was found."""
    import keras

    def check(self: Any, device_mesh: Any) -> None:
        if device_mesh is not None and device_mesh.devices.size == 1:
            need(USUAL_DEVICES, True)

    _check_before(keras.distribution.LayoutMap, "__init__", check)

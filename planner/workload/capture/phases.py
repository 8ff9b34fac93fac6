"""Phases of a script: its `fit()` calls and own loops, each distinct step traced once, equal calls counted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
from ..keras_layers import replacing
from ..model import ForwardPasses, Workload
from ..script_text import can_train_after
from .feeding import DataCounter, InputMeter
from .training_calls import StandIns, count_epochs, find_early_end
from .training_loops import LoopStep, TrainingLoops

# Facts that differ between equal models, or do not change the time of a step.
_IRRELEVANT = re.compile(
    r' at 0x[0-9a-f]+|"(shared_object_id|seed|learning_rate|name)": (-?[\d.e+-]+|"[^"]*"|null)'
)
SIMPLE = (bool, int, float, str, type(None))


def _compute_step_key(model: Any, feed: FitInputs) -> object:
    """Return a digest of a model's structure and compilation, and of the batch; else a key of its own."""
    with suppress(Exception):  # a configuration is the user's code
        layers = list(model._flatten_layers())
        facts = {
            "model": model,
            "attributes": {
                name: value
                for name, value in vars(model).items()
                if isinstance(value, SIMPLE) and not name.startswith("_") and name not in ("name", "built")
            },
            "layers": layers[1:],
            "variables": [(v.shape, str(v.dtype), bool(v.trainable)) for v in model.variables],
            "compiled": [
                model.optimizer,
                model.loss,
                getattr(getattr(model, "_compile_metrics", None), "_user_metrics", None),
                [getattr(model, name, None) for name in ("jit_compile", "run_eagerly", "steps_per_execution")],
            ]
            if model.compiled
            else None,
            "feed": (feed.x, feed.y, feed.sample_weight, feed.batch_size),
        }
        from keras.src.utils import module_utils

        # Keras would import TensorFlow, which takes seconds, to tell whether an object is one of its own.
        absent = [] if "tensorflow" in sys.modules else [(module_utils.tensorflow, "_available", False)]
        with replacing(*absent):
            text = json.dumps(facts, default=_describe, sort_keys=True)
        for number, name in enumerate(dict.fromkeys(layer.name for layer in layers)):
            text = text.replace(f'"{name}"', f'"#{number}"')
        return hashlib.sha256(_IRRELEVANT.sub("", text).encode()).hexdigest()
    return object()


def _describe(thing: Any) -> Any:
    """Return the type and configuration of an object, or its name or text."""
    if hasattr(thing, "__qualname__"):
        return [getattr(thing, "__module__", ""), thing.__qualname__]
    kind = type(thing)
    with suppress(Exception):  # user code: a layer without configuration is known by its variables
        return [kind.__module__, kind.__qualname__, thing.get_config()]
    return [kind.__module__, kind.__qualname__, "" if hasattr(thing, "call") else str(thing)]


@dataclass(eq=False)
class _Phase:
    """A distinct call: the workload of all equal ones together, the models that they trained, and their passes."""

    workload: Workload
    models: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    passes: Counter[ForwardPasses] = field(default_factory=Counter)


class EarlyEnd(NamedTuple):
    """How a script ended after its first `fit()`: why, and whether it may have gone on to train."""

    why: str
    cuts: bool


LONGEST_REST_S = 60.0  # from one `fit()` to the next, until the rest of a script is left out
WATCH_S = 0.5
SAVE_EVERY_S = 2.0
LINES_NAMED = 3  # that depend on a metric [-]


class ScriptFollower(StandIns):
    """Training calls of a script that is traced phase by phase; the phases so far are in the result file."""

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
        """Start, with what traces a `fit()`, assembles a step of a loop, measures inputs and writes the answer."""
        super().__init__(own=own, folder=folder)
        self._trace, self._assemble, self._save, self._inputs = trace, assemble, save, inputs
        self._counter = DataCounter()
        self._steps: dict[object, Workload] = {}
        self._phases: dict[object, _Phase] = {}  # by step and length; several keys may lead to one
        self._unplanned: dict[str, None] = {}
        self._saved_s = self._rested_s = time.monotonic()
        self._busy = 0
        self.loops = TrainingLoops(str(own), self._add_loop, has_trained=lambda: self.reached)
        threading.Thread(target=self._watch, daemon=True).start()

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Add a phase, and return its history."""
        with self._working():
            is_new = False
            try:
                feed = self._counter.complete(read_fit_inputs(arguments), arguments)
                is_new = self._add(model, feed, arguments, calls)
            except Exception as error:  # the data is the user's code
                self._leave_out("fit()", error)
            with suppress(Exception):
                name = find_early_end(arguments)
                if name is not None:
                    self.note(f"{name} may end training earlier: its epochs are an upper bound")
            history = super().fit(model, arguments)
            if is_new or time.monotonic() - self._saved_s > SAVE_EVERY_S:
                self.save(partial=True)
            return history

    def _add(self, model: Any, feed: FitInputs, arguments: dict[str, Any], calls: int) -> bool:
        """Add equal calls of `fit()`; return whether the phase is new."""
        epochs, step_key = count_epochs(arguments), _compute_step_key(model, feed)
        length = (feed.samples, feed.steps_per_epoch, feed.validation_samples, epochs)
        phase = self._phases.get((step_key, length))
        known = self._steps.get(step_key) or self._trace(model, feed, arguments)
        steps = None if feed.steps_per_epoch is None else feed.steps_per_epoch * epochs
        if known.batch_size != feed.batch_size:
            steps = None if feed.samples is None else -(-feed.samples // known.batch_size) * epochs
        is_new = phase is None
        if phase is None:
            workload = replace(known, samples=feed.samples, validation_samples=feed.validation_samples)
            workload = replace(workload, epochs=0, steps=0, calls=0, programs=0, fit_call=self.count)
            if self._inputs is not None:
                workload = replace(workload, input=self._inputs.measure(arguments, steps=steps))
            phase = _Phase(workload)
            for key in (step_key, _compute_step_key(model, feed)):  # it is built now
                self._steps[key], self._phases[key, length] = known, phase
        one = phase.workload
        phase.workload = replace(
            one,
            epochs=(one.epochs or 0) + epochs * calls,
            steps=None if steps is None else (one.steps or 0) + steps * calls,
            calls=one.calls + calls,
            programs=one.programs + (model not in phase.models),
        )
        phase.models.add(model)
        return is_new

    def train_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Add a step, as often as its loop runs, and return unknown metrics."""
        runs = self.loops.count(self.loops.find_place())
        with self._working():
            feed = read_fit_inputs(arguments)
            key = id(model), str(feed), len(model.trainable_variables)
            self._add_runs(key, lambda: self._trace(model, feed, arguments), runs)
        return super().train_on_batch(model, arguments)

    def _add_loop(self, place: object, build: Callable[[], LoopStep], runs: int) -> None:
        with self._working():
            self._add_runs(place, lambda: self._assemble(build()), runs)
            self.begin()

    def _add_runs(self, key: object, build: Callable[[], Workload], runs: int) -> None:
        """Add runs of a step of a loop, known by its key."""
        is_new = key not in self._phases
        if is_new:
            try:
                own = replace(build(), own_loop=True, fit_call=self.count)
                workload = replace(own, samples=None, epochs=None, steps=0)
            except GpuplanError as error:
                self._leave_out("the loop", error)
                return
            self._phases[key] = _Phase(workload)
        phase = self._phases[key]
        steps = phase.workload.steps
        phase.workload = replace(phase.workload, steps=None if steps is None else steps + runs)
        if is_new:
            self.save(partial=True)

    def _leave_out(self, what: str, error: Exception) -> None:
        """Note a call that cannot be planned; raise its error if it is the first, or may be on another backend."""
        if not self.reached or isinstance(error, BackendError):
            raise error
        cause = str(error) if isinstance(error, GpuplanError) else describe_error(error)
        cause = cause.partition(f"{NOT_TRACED}: ")[2] or cause
        self._unplanned[f"{self._line(what)} is not: {to_one_line(cause)}"] = None

    def give_up_loop(self) -> None:
        """Leave open how often the steps of loops run, since one was left."""
        for phase in self._phases.values():
            if phase.workload.epochs is None:
                phase.workload = replace(phase.workload, steps=None)
        self.note("the steps of a loop of the script cannot be counted: give them by `--steps`")

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

    def _count_passes(self, kind: Literal["evaluate", "predict"], model: Any, arguments: dict[str, Any]) -> None:
        """Add a call to the last phase that trained its model; a note where its passes cannot be counted."""
        try:
            feed = read_fit_inputs({**arguments, "steps_per_epoch": arguments.get("steps")})
            trained = [phase for phase in self._phases.values() if model in phase.models]
            if not trained:
                raise CaptureError("no fit() before it trained this model")
            if feed.samples is None or feed.steps_per_epoch is None:
                raise CaptureError("its samples cannot be counted")
            one = ForwardPasses(kind=kind, samples=feed.samples, steps=feed.steps_per_epoch)
            max(trained, key=lambda phase: phase.workload.fit_call).passes[one] += 1
        except Exception as error:  # the data is the user's code
            self.note(f"{self._line(f'{kind}()')} is not counted: {to_one_line(error)}")

    def _line(self, what: str) -> str:
        line = find_user_line(sys._getframe(1), (str(self.own),))
        return what if line is None else f"{what} at {line}"

    def save(self, *, partial: bool, ended: EarlyEnd | None = None) -> None:
        """Write the phases so far, first the longest; `partial`: the script goes on, `ended`: it ended early."""
        self._saved_s = time.monotonic()
        notes = list(self.metric_notes.values())[:LINES_NAMED]
        if self._protection is not None:
            notes += self._protection.notes
        if ended is not None:
            followed = f"the script was followed until {ended.why}"
            if ended.cuts:
                self._unplanned[followed] = None
            else:
                notes.append(f"{followed}; nothing after it trains")
        phases = [
            replace(phase.workload, passes=tuple(replace(one, calls=n) for one, n in phase.passes.items()))
            for phase in dict.fromkeys(self._phases.values())
        ]
        longest = max(phases, key=lambda one: one.flops_per_step * (one.steps or 1))
        others = tuple(one for one in phases if one is not longest)
        own = dict.fromkeys(note for one in (longest, *others) for note in one.notes)
        workload = replace(
            longest,
            further=others,
            notes=(*own, *self.notes, *notes),
            unplanned=tuple(self._unplanned),
            named_machines=tuple(self.named),
        )
        self._save({"workload": workload.to_json(), "partial": partial})

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._rested_s = time.monotonic()

    def _watch(self) -> None:
        while not self.reached or self._busy or time.monotonic() - self._rested_s < LONGEST_REST_S:
            time.sleep(WATCH_S)
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        places = [] if frame is None else find_own_places(frame, (str(self.own),))
        at = name_place(*places[-1]) if places else "a line"
        why = f"{at}, where {LONGEST_REST_S:.0f} s had passed without another fit()"
        self.save(partial=False, ended=EarlyEnd(why, can_train_after(places)))
        os._exit(0)

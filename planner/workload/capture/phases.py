"""Phases of a script: its `fit()` calls, each distinct step traced once, equal calls counted."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..build.fit_inputs import FitInputs
from ..errors import CaptureError
from ..keras_layers import replacing
from ..model import ForwardPasses, Workload
from .feeding import InputMeter
from .training_calls import count_epochs

# Facts that differ between equal models, or do not change the time of a step.
_IRRELEVANT = re.compile(
    r' at 0x[0-9a-f]+|"(shared_object_id|seed|learning_rate|name)": (-?[\d.e+-]+|"[^"]*"|null)'
)
SIMPLE = (bool, int, float, str, type(None))


def _compute_step_key(model: Any, feed: FitInputs) -> object:
    """Return a digest of a model's structure, trainable variables, compile settings, and batch.

    It is a key of its own where the user's objects cannot be described.
    """
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
            "compiled": _describe_compilation(model),
            "feed": (feed.x, feed.y, feed.sample_weight, feed.batch_size),
        }
        with _without_tensorflow():
            text = json.dumps(facts, default=_describe, sort_keys=True)
        for number, name in enumerate(dict.fromkeys(layer.name for layer in layers)):
            text = text.replace(f'"{name}"', f'"#{number}"')
        return hashlib.sha256(_IRRELEVANT.sub("", text).encode()).hexdigest()
    return object()


def _without_tensorflow() -> AbstractContextManager[None]:
    """Keep Keras from importing TensorFlow, which takes seconds, to tell whether an object is one of its own."""
    from keras.src.utils import module_utils

    lazy = getattr(module_utils, "tensorflow", None)
    if lazy is None or "tensorflow" in sys.modules or getattr(lazy, "_available", True) is not None:
        return nullcontext()
    return replacing((lazy, "_available", False))


def _describe(thing: Any) -> Any:
    """Return the type and configuration of an object, or its name or text."""
    if hasattr(thing, "__qualname__"):
        return [getattr(thing, "__module__", ""), thing.__qualname__]
    kind = type(thing)
    with suppress(Exception):  # user code: a layer without configuration is known by its variables
        return [kind.__module__, kind.__qualname__, thing.get_config()]
    return [kind.__module__, kind.__qualname__, "" if hasattr(thing, "call") else str(thing)]


def _describe_compilation(model: Any) -> Any:
    if not model.compiled:
        return None
    metrics = getattr(model, "_compile_metrics", None)
    settings = [getattr(model, name, None) for name in ("jit_compile", "run_eagerly", "steps_per_execution")]
    return [model.optimizer, model.loss, getattr(metrics, "_user_metrics", None), settings]


@dataclass(kw_only=True, eq=False)
class _Phase:
    """A distinct call: its workload for one call, the number of calls, and the models that they trained."""

    workload: Workload
    calls: int
    fit_call: int
    models: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    programs: int = 0
    passes: Counter[ForwardPasses] = field(default_factory=Counter)


class PhaseRecorder:
    """Recorder of the `fit()` calls of a script."""

    def __init__(
        self, trace: Callable[[Any, FitInputs, dict[str, Any]], Workload], inputs: InputMeter | None = None
    ) -> None:
        """Start without a phase, with a function that traces the step of a `fit()`, and a meter of its input."""
        self._trace, self._inputs = trace, inputs
        self._steps: dict[object, Workload] = {}
        self._phases: dict[object, _Phase] = {}
        self.notes: dict[str, None] = {}
        self.unplanned: dict[str, None] = {}

    def _list_distinct(self) -> list[_Phase]:
        return list(dict.fromkeys(self._phases.values()))

    def add(
        self, model: Any, feed: FitInputs, arguments: dict[str, Any], *, fit_call: int, calls: int = 1
    ) -> bool:
        """Add equal calls of `fit()`, after `fit_call` others [-]; return whether the phase is new."""
        epochs = count_epochs(arguments)
        step_key = _compute_step_key(model, feed)
        length = (feed.samples, feed.steps_per_epoch, feed.validation_samples, epochs)
        key = (step_key, length)
        phase = self._phases.get(key)
        if phase is None:
            workload = self._find_step(step_key, model, feed, epochs, arguments)
            if self._inputs is not None:
                measured = self._inputs.measure(arguments, steps=workload.steps)
                workload = replace(workload, input=measured)
            phase = self._phases[key] = _Phase(workload=workload, calls=0, fit_call=fit_call)
            self._phases[_compute_step_key(model, feed), length] = phase  # it is built now
        is_new = phase.calls == 0
        phase.calls += calls
        phase.programs += model not in phase.models
        phase.models.add(model)
        return is_new

    def add_runs(self, key: object, build: Callable[[], Workload], *, fit_call: int, runs: int) -> bool:
        """Add runs of a step of a loop, known by its key, after `fit_call` calls [-]; return whether it is new."""
        phase, is_new = self._phases.get(key), key not in self._phases
        if phase is None:
            workload = replace(build(), samples=None, epochs=None, steps=0)
            phase = self._phases[key] = _Phase(workload=workload, calls=1, fit_call=fit_call, programs=1)
        steps = phase.workload.steps
        phase.workload = replace(phase.workload, steps=None if steps is None else steps + runs)
        return is_new

    def forget_runs(self) -> None:
        """Leave open how often the steps of loops run, since one was left."""
        for phase in self._list_distinct():
            if phase.workload.epochs is None:
                phase.workload = replace(phase.workload, steps=None)

    def add_passes(self, kind: Literal["evaluate", "predict"], model: Any, feed: FitInputs) -> None:
        """Add a call of `evaluate()` or `predict()` to the last phase that trained its model."""
        trained = [phase for phase in self._list_distinct() if model in phase.models]
        if not trained:
            raise CaptureError("no fit() before it trained this model")
        if feed.samples is None or feed.steps_per_epoch is None:
            raise CaptureError("its samples cannot be counted")
        one = ForwardPasses(kind=kind, samples=feed.samples, steps=feed.steps_per_epoch)
        max(trained, key=lambda phase: phase.fit_call).passes[one] += 1

    def _find_step(
        self, key: object, model: Any, feed: FitInputs, epochs: int, arguments: dict[str, Any]
    ) -> Workload:
        known = self._steps.get(key)
        if known is None:
            known = self._trace(model, feed, arguments)
            self._steps[key] = self._steps[_compute_step_key(model, feed)] = known
        steps = None if feed.steps_per_epoch is None else feed.steps_per_epoch * epochs
        if known.batch_size != feed.batch_size:
            steps = None if feed.samples is None else -(-feed.samples // known.batch_size) * epochs
        return replace(
            known, samples=feed.samples, epochs=epochs, steps=steps, validation_samples=feed.validation_samples
        )

    def build_workload(self, *, notes: tuple[str, ...] = ()) -> Workload:
        """Return the longest phase as a workload with the others, and the notes of the script."""
        distinct = self._list_distinct()
        phases = [_repeat(phase) for phase in distinct]
        longest = max(phases, key=lambda one: one.flops_per_step * (one.steps or 1))
        others = tuple(one for one in phases if one is not longest)
        own = dict.fromkeys(note for one in (longest, *others) for note in one.notes)
        notes = (*own, *self.notes, *notes)
        return replace(longest, further=others, notes=notes, unplanned=tuple(self.unplanned))


def _repeat(phase: _Phase) -> Workload:
    """Return the workload of all equal calls together."""
    one, calls = phase.workload, phase.calls
    return replace(
        one,
        epochs=None if one.epochs is None else one.epochs * calls,
        steps=None if one.steps is None else one.steps * calls,
        calls=calls,
        programs=phase.programs,
        fit_call=phase.fit_call,
        passes=tuple(replace(one, calls=times) for one, times in phase.passes.items()),
    )

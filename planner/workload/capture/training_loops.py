"""Training loops of a script's own: the step that runs, known by the update at its end, and how often it runs."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, NamedTuple

from ..errors import CaptureError, find_own_places, walk_frames
from ..trace.backends.current import build_unfused
from ..trace.jax.step import TracedStep
from .for_loops import ForLoop, count_runs, end_loops, is_in_while, list_running

LONGEST_COUNT_S = 10.0  # computing time of a loop whose length is found by running it
HELD = "held_by_gpuplan"
Updates = list[tuple[Any, list[Any]]]  # optimizers, each with the variables that it updates


class LoopGivenUpError(BaseException):
    """A loop was left, since it runs too long to be counted."""


class LoopStep(NamedTuple):
    """A step of a loop.

    Args:
        model: The model that it trains.
        traced: Its operations and memory.
        batch_size: Samples of a step [-].
        compiled: Whether it is one XLA program, or run kernel by kernel.
    """

    model: Any
    traced: TracedStep
    batch_size: int
    compiled: bool


class LoopCounter:
    """Counter of the runs of calls in loops, each call by its place."""

    def __init__(self, folder: str) -> None:
        """Start; `folder`: of the user's own files."""
        self._folder = folder
        self._counted: dict[object, dict[ForLoop, int]] = {}
        self._started_s: dict[object, float] = {}

    def find_place(self) -> tuple[tuple[str, int], ...]:
        """Return the lines of the user's files that lead to the call that runs."""
        return tuple(find_own_places(walk_frames(sys._getframe(1)), (self._folder,)))

    def count(self, place: tuple[tuple[str, int], ...], *, ends: bool = True) -> int:
        """Return for how many runs a call stands [-], and end its loops; LoopGivenUpError if it goes on."""
        if place in self._counted:
            now_s = time.process_time()
            if now_s - self._started_s.setdefault(place, now_s) > LONGEST_COUNT_S:
                raise LoopGivenUpError
        counted = self._counted.setdefault(place, {})
        if is_in_while(place):
            return 1
        times = count_runs(counted)
        if ends:
            end_loops()
        return times

    def end(self, place: tuple[tuple[str, int], ...]) -> None:
        """End the loops of a call, unless their length is found by running them."""
        if not is_in_while(place):
            end_loops()


class TrainingLoops:
    """Steps of loops: functions that a backend compiles, or what runs between two updates."""

    def __init__(self, counter: LoopCounter, add: Callable[[object, Callable[[], LoopStep], int], None]) -> None:
        """Start before the first step.

        Args:
            counter: Counter of runs.
            add: Function that takes a step: its place, how it is found, and for how many runs it stands.
        """
        self._counter, self._add = counter, add
        self._updates: Updates | None = None  # of the function that is traced
        self._pending: dict[object, int] = {}
        self._known: set[object] = set()
        self._last: dict[ForLoop, int] = {}  # loops at the last update, with their iterations
        self._recorded: tuple[list[Any], list[Any]] | None = None
        self._recording = ExitStack()
        self.batch_size = 1  # of the last call of a model [-]

    @property
    def is_tracing(self) -> bool:
        """Whether a function of the user's is traced."""
        return self._updates is not None

    def trace(self, trace: Callable[[], Any]) -> tuple[Any, Updates]:
        """Return the result of a function that traces one of the user's, and the updates in it."""
        found: Updates = []
        self._updates = found
        try:
            return trace(), found
        finally:
            self._updates = None

    def add_compiled(self, build: Callable[[], LoopStep]) -> None:
        """Take a run of a compiled step, which ends its loops."""
        place = self._counter.find_place()
        self._add(place, build, self._counter.count(place))

    def enter(self, phase: Any) -> None:
        """Note that the backward pass or the update of a step begins."""
        if self._recorded is not None:
            self._recorded[1][0] = phase

    def update(self, optimizer: Any, variables: list[Any]) -> None:
        """Take an update: in a function that is traced, or at the end of a step of a loop.

        Such a step is what ran since the last update in the same loop, which runs until all its steps are known.
        """
        if self._updates is not None:
            self._updates.append((optimizer, variables))
            return
        place, rows = self._counter.find_place(), self._take_rows()
        running = {loop: loop.iteration for loop in list_running()}
        follows, self._last = bool(running.items() & self._last.items()), running
        runs = self._counter.count(place, ends=False) + self._pending.get(place, 0)
        if not (follows or place in self._known or place in self._pending):
            self._pending[place] = runs
            return
        self._pending.pop(place, None)
        self._known.add(place)
        self._add(place, partial(_build_step, rows, [(optimizer, variables)], self.batch_size), runs)
        if not self._pending:
            self._counter.end(place)

    def _take_rows(self) -> tuple[Any, ...]:
        """Return what ran since the last update; what runs is recorded from the first one on."""
        if self._recorded is None:
            self._recorded = self._recording.enter_context(_record_rows())
        rows, phase = self._recorded
        taken, phase[0] = tuple(rows), "forward"
        rows.clear()
        return taken


def _record_rows() -> AbstractContextManager[tuple[list[Any], list[Any]]]:
    """Return a context of the rows of what runs kernel by kernel in it, and of its phase, which may be set."""
    import keras

    if keras.backend.backend() == "torch":
        from ..trace.backends.torch_step import record_rows
    else:
        from ..trace.backends.tensorflow_step import record_rows
    return record_rows()


def _build_step(rows: tuple[Any, ...], updates: Updates, batch_size: int) -> LoopStep:
    model = hold_models(updates)
    return LoopStep(model, build_unfused(model, rows, train=True, input_bytes=0), batch_size, False)


def hold_models(updates: Updates) -> Any:
    """Return a model of the models that some updates train, with the variables of all their optimizers."""
    import keras

    trained = {id(variable) for _, variables in updates for variable in variables}
    objects = (one for one in gc.get_objects() if issubclass(type(one), keras.Model))
    every = [one for one in objects if getattr(one, "built", False) and not hasattr(one, HELD)]
    inner = {id(layer) for one in every for layer in one._flatten_layers(include_self=False)}
    found = [one for one in every if id(one) not in inner and not trained.isdisjoint(_list_trained(one))]
    if not found:
        raise CaptureError("the loop updates variables of no Keras model")

    class Models(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, HELD, found)
            self.built = True

    held = Models()
    optimizers = {id(optimizer): optimizer for optimizer, _ in updates}  # a function may be traced twice
    state = [one for optimizer in optimizers.values() for one in _list_state(optimizer, held)]
    object.__setattr__(held, "optimizer", _Optimizers(state))
    return held


def _list_trained(model: Any) -> Iterator[int]:
    for variable in model.trainable_variables:
        yield from (id(variable), id(getattr(variable, "_value", variable)))


def _list_state(optimizer: Any, model: Any) -> list[Any]:
    """Return the variables of an optimizer; of one of PyTorch's, those that Keras's of the same name has."""
    import keras

    if not isinstance(optimizer, keras.optimizers.Optimizer):
        optimizer = getattr(keras.optimizers, type(optimizer).__name__, keras.optimizers.Adam)()
        optimizer.build(model.trainable_variables)
    return list(optimizer.variables)


class _Optimizers:
    """The variables of the optimizers of a step."""

    def __init__(self, variables: list[Any]) -> None:
        self.variables, self.built = variables, True

"""Wrapper of `keras.Model.fit` that resumes from the last checkpoint, and the callback that saves new ones."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType
from typing import Any

import keras

from .checkpoint import LEAVE, Checkpoints, ControlFlags, Progress, read_json, write_json
from .order import BatchOrder, OrderChangedError
from .state import (
    SavedState,
    build_model,
    load_state,
    restore_metrics,
    restore_model,
    restore_random_states,
    save_model,
)
from .timing import StepClock, find_batch_size, find_epoch_iterator


class CheckpointCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that is inserted before the user's callbacks.

    Args:
        start: Progress at the start: none, or as loaded.
        state: State to load when training begins; None without one.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        start: Progress,
        state: SavedState | None,
        order: BatchOrder,
        control: ControlFlags,
        clock: StepClock,
    ) -> None:
        super().__init__()
        self.checkpoints, self.order, self.control, self.clock = checkpoints, order, control, clock
        self.partial = False
        self.start, self._state = start, state
        self._epoch, self._batch, self._steps = start.epoch, start.batch, start.steps
        self._history = dict(start.history)
        self._steps_per_epoch = start.steps_per_epoch
        self._saved_at = time.monotonic()
        self._saved_within = False
        self._last_logs: dict[str, Any] = dict(start.logs)

    @property
    def progress(self) -> Progress:
        logs = {name: float(value) for name, value in self._last_logs.items()} if self._batch else {}
        return self._build_progress(batch=self._batch, order=self.order.to_json(), logs=logs)

    def _build_progress(self, **more: Any) -> Progress:
        return Progress(
            epoch=self._epoch,
            steps=self._steps,
            steps_per_epoch=self._steps_per_epoch,
            history=self._history,
            **more,
        )

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the checkpoint: the model and its optimizer have their variables now."""
        iterator = find_epoch_iterator()
        if self._state is not None:
            build_model(self.model, iterator)
            if self.start.batch and not self.checkpoints.begins():
                self._save(Progress(epoch=self.start.epoch, batch=0, steps=0))
            restore_model(self.model, self._state)
        self.order.attach(iterator, self.model)
        precision, backend = str(self.model.dtype_policy.name), str(keras.backend.backend())
        self.clock.facts = {"batch_size": find_batch_size(), "precision": precision, "backend": backend}
        if self._steps_per_epoch is None:
            self._steps_per_epoch = self.params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start counting at the epoch's beginning, or at its saved position with restored metrics."""
        self._epoch, self._batch = epoch, self.start.batch if epoch == self.start.epoch else 0
        if self._batch and self._state is not None:
            self.partial = not restore_metrics(self.model, self._state)
        self._saved_within = False
        self.clock.pause()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count and time the batch; save or leave if due."""
        if self.order.dry:
            return
        trained, self._batch = batch + 1 - self._batch, batch + 1
        self._steps += trained
        self.order.trained(trained)
        self._last_logs = dict(logs or {})
        self.clock.facts |= {
            "epoch": self._epoch + 1,
            "epochs": self.params["epochs"],
            "batch": self._batch,
            "batches": self._steps_per_epoch,
            "loss": self._last_logs.get("loss"),
        }
        self.clock.step(self._steps)
        if self._batch != self._steps_per_epoch:  # `on_epoch_end` follows and stores the history
            self._save_or_leave()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Leave during validation: the epoch is trained, and its validation is repeated after the resume."""
        if self.control.leave:
            self._steps_per_epoch = self._batch
            self._save_or_leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch; save its end if there are checkpoints within epochs."""
        self._steps_per_epoch = self._batch or self._steps_per_epoch
        for name, value in (logs or {}).items():
            unknown = self.partial and not name.startswith("val_")
            self._history.setdefault(name, []).append(math.nan if unknown else float(value))
        self._epoch, self._batch, self.partial = epoch + 1, 0, False
        self._save_or_leave(due=self._saved_within)

    def finish(self) -> None:
        """Save the end, so that a restart does not train again."""
        self._save(self._build_progress(batch=0, finished=True, drawn=self.order.drawn))

    def _save(self, progress: Progress) -> None:
        random = self.order.states_now(within_epoch=bool(progress.batch))
        self.checkpoints.save(progress, functools.partial(save_model, self.model, random=random))

    def _save_or_leave(self, *, due: bool = False) -> None:
        """Save when a checkpoint is due, and leave on request."""
        leave = self.control.leave
        if due or leave or time.monotonic() - self._saved_at >= self.control.every_s:
            self._save(self.progress)
            self._saved_at, self._saved_within = time.monotonic(), True
            self.clock.pause()
        if leave:
            raise SystemExit(LEAVE)


def wrap_fit(folder: Path, *, control: ControlFlags, clock: StepClock) -> None:
    """Make every outermost `fit` of this process resume from a folder that outlives the machine."""
    original = keras.Model.fit
    wrapped = _ResumableFit(original, folder, control, clock)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapped(self, *args, **kwargs)

    keras.Model.fit = fit


class _ResumableFit:
    """Counts and wraps the `fit` calls of this process."""

    def __init__(
        self, original: Callable[..., Any], folder: Path, control: ControlFlags, clock: StepClock
    ) -> None:
        self._original, self._folder, self._control, self._clock = original, folder, control, clock
        self._count = 0

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one call of `fit`."""
        if self._control.in_fit:
            return self._original(model, *args, **kwargs)
        self._control.in_fit = True
        try:
            folder = self._folder / f"fit-{self._count}"
            self._count += 1
            return self._resumed(model, Checkpoints(folder), *args, **kwargs)
        finally:
            self._control.in_fit = False

    def _resumed(self, model: Any, checkpoints: Checkpoints, *args: Any, **kwargs: Any) -> Any:
        """Run `fit` from its saved position, or from the beginning of an epoch if that cannot be restored."""
        bound = inspect.signature(self._original).bind(model, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.pop("self", None)
        callback = self._build_callback(checkpoints, given, replay=True)
        if callback.start.finished:
            return self._loaded(model, callback, given)
        try:
            return self._trained(model, callback, given)
        except OrderChangedError:
            callback.order.close()
            checkpoints.back_to_begin()
            again = self._build_callback(checkpoints, given, replay=False)
            self._say(
                f"epoch {again.start.epoch + 1} starts again from its first batch: the data came in another order;"
                f" {callback.start.steps - again.start.steps} trained batches are dropped"
            )
            return self._trained(model, again, {**given, "x": callback.order.rewound(given["x"])})

    def _build_callback(
        self, checkpoints: Checkpoints, given: dict[str, Any], *, replay: bool
    ) -> CheckpointCallback:
        """Return the callback that loads the newest checkpoint and resumes from it."""
        first = int(given["initial_epoch"])
        start, weights = checkpoints.load() or (Progress(epoch=first, batch=0, steps=0), None)
        state = load_state(weights) if weights else None
        states = state.random if replay and state is not None else None
        restore_random_states((states or {}).get("fit", {}))
        order = BatchOrder(start, first=first, states=states)
        callback = CheckpointCallback(
            checkpoints, start=start, state=state, order=order, control=self._control, clock=self._clock
        )
        order.on_found = lambda: self._say(_continued(start, partial=callback.partial))
        return callback

    def _loaded(self, model: Any, callback: CheckpointCallback, given: dict[str, Any]) -> Any:
        """Run `fit` without epochs: build the model, load its weights, advance a generator."""
        order, x = callback.order, given["x"]
        nothing = {"x": order.counted(x), "epochs": int(given["initial_epoch"]), "callbacks": [callback]}
        result = self._original(model, **{**given, **nothing})
        if isinstance(x, GeneratorType):
            for _ in itertools.islice(x, max(0, callback.start.drawn - order.drawn)):
                pass
        restore_random_states(order.states.get("begin", {}))
        return _with_history(result, callback.start)

    def _trained(self, model: Any, callback: CheckpointCallback, given: dict[str, Any]) -> Any:
        rest = {
            "x": callback.order.counted(given["x"]),
            "callbacks": _in_front(callback, given["callbacks"]),
            "initial_epoch": min(callback.start.epoch, given["epochs"]),
        }
        result = self._original(model, **{**given, **rest})
        callback.finish()
        return _with_history(result, callback.progress)

    def _say(self, text: str) -> None:
        """Log how training resumed, and store it for the result."""
        text = f"fit {self._count}: {text}"
        print(f"gpuplan: {text}", file=sys.stderr, flush=True)  # noqa: T201
        path = self._folder / "resumed.json"
        write_json(path, [*read_json(path, []), text])


def _continued(start: Progress, *, partial: bool) -> str:
    """Describe a resume at the saved position; epochs and batches are counted as Keras prints them.

    Example:
        >>> _continued(Progress(epoch=2, batch=22, steps=102), partial=False)
        'continues in epoch 3 after batch 22; the batches before it are those that were trained'
        >>> _continued(Progress(epoch=2, batch=0, steps=80), partial=False)
        'continues with epoch 3'
    """
    if not start.batch:
        return f"continues with epoch {start.epoch + 1}"
    text = f"continues in epoch {start.epoch + 1} after batch {start.batch}; the batches before it are those that"
    missing = "; metrics of this epoch are those of its later batches, and not in the history" if partial else ""
    return f"{text} were trained{missing}"


def _in_front(callback: CheckpointCallback, callbacks: Any) -> Any:
    """Return the user's callbacks with the checkpoint callback before them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        others = [callback for callback in callbacks.callbacks if not isinstance(callback, CheckpointCallback)]
        callbacks.callbacks = [callback, *others]
        return callbacks
    others = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
    return [callback, *others]


def _with_history(result: Any, progress: Progress) -> Any:
    """Add the epochs of earlier processes to the history of a `fit`."""
    if result is not None and hasattr(result, "history"):
        result.history = {name: list(values) for name, values in progress.history.items()}
        longest = max((len(values) for values in progress.history.values()), default=0)
        result.epoch = list(range(progress.epoch - longest, progress.epoch))
    return result

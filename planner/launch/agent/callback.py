"""Keras callback: saves at intervals, times the steps, and leaves with a checkpoint on request.

It never sets `stop_training`: Keras would end `fit` as complete (and `BackupAndRestore` would delete its backup).
It leaves with `SystemExit(75)`, the code for "try again later" (sysexits.h, EX_TEMPFAIL).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras

from .checkpoint import LEAVE, Checkpoints, ControlFlags, Progress
from .order import BatchOrder
from .state import SavedState, build_model, restore_metrics, restore_model, save_model
from .timing import StepClock, collect_fit_info, find_epoch_iterator


@dataclass
class _Position:
    """Position of training."""

    epoch: int
    batch: int
    steps: int
    history: dict[str, list[float]] = field(default_factory=dict)


class CheckpointCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that is inserted before the user's callbacks.

    Args:
        checkpoints: Checkpoints of this `fit`.
        start: Progress at the start: none, or as loaded.
        state: State to load when training begins; None without one.
        order: Position in the data.
        control: Stop and checkpoint requests.
        clock: Timer of the steps.
        monotonic: Monotonic clock [s].
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.checkpoints, self.order, self.control, self.clock = checkpoints, order, control, clock
        self.partial = False
        self._monotonic = monotonic
        self.start, self._state = start, state
        self._place = _Position(start.epoch, start.batch, start.steps, dict(start.history))
        self._steps_per_epoch = start.steps_per_epoch
        self._saved_at = monotonic()
        self._saved_within = False
        self._last_logs: dict[str, Any] = dict(start.logs)

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        place = self._place
        return Progress(
            epoch=place.epoch,
            batch=place.batch,
            steps=place.steps,
            steps_per_epoch=self._steps_per_epoch,
            history=place.history,
            order=self.order.to_json(),
            logs={name: float(value) for name, value in self._last_logs.items()} if place.batch else {},
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
        self.clock.facts = collect_fit_info(self.model)
        if self._steps_per_epoch is None:
            self._steps_per_epoch = self.params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start counting at the epoch's beginning, or at its saved position with restored metrics."""
        place = self._place
        place.epoch, place.batch = epoch, self.start.batch if epoch == self.start.epoch else 0
        if place.batch and self._state is not None:
            self.partial = not restore_metrics(self.model, self._state)
        self._saved_within = False
        self.clock.pause()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count and time the batch; save or leave if due."""
        if self.order.dry:
            return
        place = self._place
        trained, place.batch = batch + 1 - place.batch, batch + 1
        place.steps += trained
        self.order.trained(trained)
        self._last_logs = dict(logs or {})
        self.clock.step(place.steps)
        if place.batch != self._steps_per_epoch:  # `on_epoch_end` follows and stores the history
            self._save_or_leave()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Leave during validation: the epoch is trained, and its validation is repeated after the resume."""
        if self.control.leave:
            self._steps_per_epoch = self._place.batch
            self._save_or_leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch; save its end if there are checkpoints within epochs."""
        place = self._place
        self._steps_per_epoch = place.batch or self._steps_per_epoch
        for name, value in (logs or {}).items():
            unknown = self.partial and not name.startswith("val_")
            place.history.setdefault(name, []).append(math.nan if unknown else float(value))
        place.epoch, place.batch, self.partial = place.epoch + 1, 0, False
        self._save_or_leave(due=self._saved_within)

    def finish(self) -> None:
        """Save the end, so that a restart does not train again."""
        place = self._place
        done = Progress(
            epoch=place.epoch,
            batch=0,
            steps=place.steps,
            steps_per_epoch=self._steps_per_epoch,
            finished=True,
            history=place.history,
            drawn=self.order.drawn,
        )
        self._save(done)

    def _save(self, progress: Progress) -> None:
        """Save a checkpoint of the model."""
        random = self.order.states_now(within_epoch=bool(progress.batch))
        self.checkpoints.save(progress, functools.partial(save_model, self.model, random=random))

    def _save_or_leave(self, *, due: bool = False) -> None:
        """Save when a checkpoint is due, and leave on request."""
        leave = self.control.leave
        if due or leave or self._monotonic() - self._saved_at >= self.control.every_s:
            self._save(self.progress)
            self._saved_at, self._saved_within = self._monotonic(), True
            self.clock.pause()
        if leave:
            raise SystemExit(LEAVE)

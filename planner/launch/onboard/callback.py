"""The callback: saves every so often, times the steps, and leaves with a checkpoint when it is told to.

It never sets `stop_training`: Keras would end `fit` as if it were done (and its own `BackupAndRestore` would
remove the backup). It leaves with `SystemExit(75)`, the code for "try again later" (sysexits.h, EX_TEMPFAIL).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras

from .checkpoint import Checkpoints, Progress
from .facts import facts_of
from .state import load_model, save_model
from .timing import StepClock
from .wishes import LEAVE, Wishes

__all__ = ["Guard"]


@dataclass
class _Place:
    """Where training is."""

    epoch: int
    batch: int
    steps: int
    offset: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)


class Guard(keras.callbacks.Callback):  # type: ignore[misc]
    """What `fit` gets in front of the user's callbacks.

    Args:
        checkpoints: Where to save.
        start: Where training starts: from nothing, or as loaded.
        weights: What to load when training begins; None: nothing.
        wishes: What the surroundings want.
        clock: Times the steps.
        monotonic: Seconds that only grow [s].
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        start: Progress,
        weights: str | None,
        wishes: Wishes,
        clock: StepClock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.checkpoints, self.wishes, self.clock = checkpoints, wishes, clock
        self._monotonic = monotonic
        self._weights = weights
        self._place = _Place(start.epoch, start.batch, start.steps, start.batch, dict(start.history))
        self._steps_per_epoch = start.steps_per_epoch
        self._saved_at = monotonic()
        self._last_logs: dict[str, Any] = {}

    @property
    def progress(self) -> Progress:
        """How far training is."""
        place = self._place
        return Progress(
            epoch=place.epoch, batch=place.batch, steps=place.steps, steps_per_epoch=self._steps_per_epoch,
            history=place.history,
        )  # fmt: skip

    def on_train_begin(self, logs: Any = None) -> None:
        """Load what was saved; by now the model and its optimizer have their variables."""
        if self._weights is not None:
            load_model(self.model, self._weights)
            self._weights = None
        self.clock.facts = facts_of(self.model)
        if self._steps_per_epoch is None and self._place.offset == 0:
            self._steps_per_epoch = self.params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count from the epoch's begin, or from where it was left."""
        place = self._place
        if epoch != place.epoch:
            place.offset = 0
        place.epoch, place.batch = epoch, place.offset
        self.clock.pause()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count, time, and save or leave when it is time for that."""
        place = self._place
        done = place.offset + batch + 1
        place.steps += done - place.batch
        place.batch = done
        self._last_logs = dict(logs or {})
        self.clock.step(place.steps)
        if done != self._steps_per_epoch:  # the epoch's own end comes next, and keeps its history
            self._save_or_leave()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Leave during validation too: the epoch is trained, and counts; its validation is not in the history."""
        if self.wishes.leave:
            self._end_epoch(self._last_logs)
            self._save_or_leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count an epoch more."""
        self._end_epoch(logs or {})
        self._save_or_leave()

    def _end_epoch(self, logs: Any) -> None:
        """An epoch is trained: its length is known now."""
        place = self._place
        self._steps_per_epoch = place.batch or self._steps_per_epoch
        for name, value in logs.items():
            place.history.setdefault(name, []).append(float(value))
        place.epoch, place.batch, place.offset = place.epoch + 1, 0, 0

    def finish(self) -> None:
        """Keep the end, so that a restart does not train it again."""
        place = self._place
        done = Progress(
            epoch=place.epoch, batch=0, steps=place.steps, steps_per_epoch=self._steps_per_epoch,
            finished=True, history=place.history,
        )  # fmt: skip
        self._save(done)

    def _save(self, progress: Progress) -> None:
        """Keep a checkpoint of the model as it is."""
        self.checkpoints.save(progress, functools.partial(save_model, self.model))

    def _save_or_leave(self) -> None:
        """Save when it is time to, and leave when told."""
        leave = self.wishes.leave
        if leave or self._monotonic() - self._saved_at >= self.wishes.every_s:
            self._save(self.progress)
            self._saved_at = self._monotonic()
            self.clock.pause()
        if leave:
            raise SystemExit(LEAVE)

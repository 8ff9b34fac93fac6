"""Keras callbacks that record the ends of steps, shared by `gpuplan profile` and `StepTimer`.

`fit()` converts every step's logs to Python numbers before it calls a callback, on JAX and PyTorch in a separate
thread if all callbacks are `async_safe`. A callback call therefore implies that the step has ended on the device.
Use `_model`, not `model`: on JAX the property writes the state back into the model's variables during an epoch.
On JAX `fit()` starts some thirty steps before the first of them has ended, and all that were started have to end
before `fit()` returns. A recorder that ends `fit()` early therefore limits how far the loop runs ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from .windows import Meter

# A loop may run ahead of the device by this many steps, or by this time if it is longer: the device never waits.
MAX_STEPS_AHEAD = 4
MAX_TIME_AHEAD_S = 0.5
OnWindow = Callable[[Meter], None]


@dataclass(slots=True)
class Epoch:
    """An epoch of `fit()`."""

    began_s: float  # start time [s]
    steps: int = 0  # completed steps [-]
    # first_s, last_s: end of its first and last step; None until then [s]
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float | None = None  # end including validation; None until then [s]
    validation_s: float = 0.0  # time of validation in it [s]


class StepRecorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that passes the ends of training steps to a meter and records epoch times.

    Args:
        meter: Meter of the steps; the very first step (compilation) is only timed.
        stop: Whether to end `fit()` or `predict()` when the meter is done.
        most_steps: Number of steps after which to end `fit()`; None for no limit [-].
        on_window: Callback after each window, with the meter.
    """

    async_safe = True

    def __init__(
        self,
        meter: Meter,
        *,
        stop: bool = False,
        most_steps: int | None = None,
        on_window: OnWindow = lambda meter: None,
    ) -> None:
        super().__init__()
        self.meter, self.stop, self.on_window = meter, stop, on_window
        self.most_steps = most_steps
        self.epochs: list[Epoch] = []
        self.train_began_s: float | None = None
        self.train_ended_s: float | None = None
        self.first_step_s: float | None = None
        self.steps_per_call = 1  # steps per callback call [-]
        self._changed = threading.Condition()
        self._started = 0  # calls of the step started in this epoch [-]
        self._call_s: float | None = None  # mean time of a call; None until two of an epoch have ended [s]
        self._test_began_s = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        """Start the clock."""
        self.train_began_s = time.perf_counter()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start an epoch; windows do not span epochs."""
        self.steps_per_call = int(getattr(self._model, "steps_per_execution", 1) or 1)
        self.meter.pause()
        self._started = 0
        self.epochs.append(Epoch(began_s=time.perf_counter()))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Wait while the loop is so far ahead of the device that it could not be ended soon."""
        if self._is_too_far_ahead and (self.stop or self.most_steps is not None):
            longest_s = max(1.0, 4 * (self._call_s or 0.0))
            with self._changed:
                # A step that fails never ends; Keras raises its error when the next one is started.
                self._changed.wait_for(lambda: not self._is_too_far_ahead, longest_s)
        self._started += 1

    @property
    def _is_too_far_ahead(self) -> bool:
        ahead = self._started - self._count_ended()
        return ahead >= MAX_STEPS_AHEAD and (self._call_s is None or ahead * self._call_s >= MAX_TIME_AHEAD_S)

    def _count_ended(self) -> int:
        """Return the number of calls of this epoch whose results are there [-]."""
        return self.epochs[-1].steps // self.steps_per_call

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record completed steps; may be called in any thread."""
        now_s, steps = time.perf_counter(), self.steps_per_call
        with self._changed:
            epoch = self.epochs[-1]
            epoch.steps += steps
            epoch.last_s = now_s
            if epoch.first_s is None:
                epoch.first_s = now_s
                if self.first_step_s is None:
                    self.first_step_s = now_s - epoch.began_s
            else:
                self._call_s = (now_s - epoch.first_s) / (self._count_ended() - 1)
            self._changed.notify_all()
            closed = self.meter.ended(now_s, steps)
            if self.most_steps is not None and epoch.steps >= self.most_steps:
                self._model.stop_training = True
        if closed:
            self._closed()

    def _closed(self) -> None:
        self.on_window(self.meter)
        if self.stop and self.meter.done:
            self._model.stop_training = self._model.stop_predicting = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Record the start of validation."""
        self._test_began_s = time.perf_counter()

    def on_test_end(self, logs: Any = None) -> None:
        """Record the time of validation."""
        if self.epochs:
            self.epochs[-1].validation_s += time.perf_counter() - self._test_began_s

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Record the end of the epoch."""
        self.epochs[-1].ended_s = time.perf_counter()
        if self.meter.pause():
            self._closed()

    def on_train_end(self, logs: Any = None) -> None:
        """Record the end of the run."""
        self.train_ended_s = time.perf_counter()


class PredictRecorder(StepRecorder):
    """Recorder of the steps of `predict()`, each call as an epoch."""

    def on_predict_begin(self, logs: Any = None) -> None:
        """Start a call; windows do not span calls."""
        self.on_epoch_begin(len(self.epochs))

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record completed steps; may be called in any thread."""
        for leaf in keras.tree.flatten(logs):
            if hasattr(leaf, "block_until_ready"):  # JAX returns arrays that are still being computed
                leaf.block_until_ready()
        self.on_train_batch_end(batch)

"""A Keras callback that takes the time at which steps end. What `gpuplan profile` and `StepTimer` share.

`fit()` itself turns every step's logs into Python numbers before a callback sees them, on JAX and PyTorch in a
thread of its own when all callbacks are `async_safe`. So a call says that its step has ended on the device, and no
further synchronization is needed or made.

`_model` and not `model`: on JAX the property puts the state back into the model's variables, in the middle of an
epoch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from .windows import Meter

__all__ = ["Epoch", "PredictRecorder", "StepRecorder"]

Clock = Callable[[], float]


@dataclass(slots=True)
class Epoch:
    """One epoch of `fit()`.

    Args:
        began_s: When it began [s].
        steps: Steps that have ended [-].
        first_s, last_s: When its first and last step ended; None before [s].
        ended_s: When all of it, validation included, was over; None before [s].
        validation_s: Time of validation in it [s].
    """

    began_s: float
    steps: int = 0
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float | None = None
    validation_s: float = 0.0


class StepRecorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Feeds a meter with the ends of training steps, and keeps the times of epochs.

    Args:
        meter: Takes the steps; of the first epoch's first step only the time is kept (it compiles).
        stop: Ends `fit()` when the meter has enough.
        most_steps: Ends `fit()` after so many steps; None: it goes on [-].
        on_window: Called after each window with the meter.
        clock: Seconds, monotonic.
    """

    async_safe = True

    def __init__(
        self, meter: Meter, *, stop: bool = False, most_steps: int | None = None,
        on_window: Callable[[Meter], None] | None = None, clock: Clock = time.perf_counter,
    ) -> None:  # fmt: skip
        super().__init__()
        self.meter, self.stop, self.on_window, self.clock = meter, stop, on_window, clock
        self.most_steps = most_steps
        self.epochs: list[Epoch] = []
        self.train_began_s: float | None = None
        self.train_ended_s: float | None = None
        self.first_step_s: float | None = None
        self.steps_per_call = 1  # steps between two calls of a callback [-]
        self._lock = threading.Lock()
        self._test_began_s = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        """Start the clock."""
        self.train_began_s = self.clock()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Let no window reach across epochs."""
        self.steps_per_call = int(getattr(self._model, "steps_per_execution", 1) or 1)
        self.meter.pause()
        self.epochs.append(Epoch(began_s=self.clock()))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Take note of steps that have ended; may be called in any thread."""
        now_s, steps = self.clock(), self.steps_per_call
        with self._lock:
            epoch = self.epochs[-1]
            epoch.steps += steps
            epoch.last_s = now_s
            if epoch.first_s is None:
                epoch.first_s = now_s
                if self.first_step_s is None:
                    self.first_step_s = now_s - epoch.began_s
            closed = self.meter.ended(now_s, steps)
            if self.most_steps is not None and epoch.steps >= self.most_steps:
                self._model.stop_training = True
        if closed:
            self._closed()

    def _closed(self) -> None:
        if self.on_window is not None:
            self.on_window(self.meter)
        if self.stop and self.meter.done:
            self._model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Note when validation begins."""
        self._test_began_s = self.clock()

    def on_test_end(self, logs: Any = None) -> None:
        """Note how long validation took."""
        if self.epochs:
            self.epochs[-1].validation_s += self.clock() - self._test_began_s

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch's end."""
        self.epochs[-1].ended_s = self.clock()
        if self.meter.pause():
            self._closed()

    def on_train_end(self, logs: Any = None) -> None:
        """Note the end of the run."""
        self.train_ended_s = self.clock()


class PredictRecorder(keras.callbacks.Callback):  # type: ignore[misc]
    """The same for `predict()`.

    Args:
        meter: Takes the steps.
        on_window: Called after each window.
        clock: Seconds, monotonic.
    """

    async_safe = True

    def __init__(
        self, meter: Meter, *, on_window: Callable[[Meter], None] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:  # fmt: skip
        super().__init__()
        self.meter, self.on_window, self.clock = meter, on_window, clock
        self.began_s, self.first_step_s = 0.0, 0.0
        self._lock = threading.Lock()

    def on_predict_begin(self, logs: Any = None) -> None:
        """Let no window reach across calls."""
        self.meter.pause()
        self.began_s = self.clock()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Take note of a batch that has ended."""
        for leaf in keras.tree.flatten(logs):
            if hasattr(leaf, "block_until_ready"):  # JAX hands out arrays that are still being computed
                leaf.block_until_ready()
        now_s = self.clock()
        with self._lock:
            self.first_step_s = self.first_step_s or now_s - self.began_s
            closed = self.meter.ended(now_s, int(getattr(self._model, "steps_per_execution", 1) or 1))
        if closed:
            if self.on_window is not None:
                self.on_window(self.meter)
            if self.meter.done:
                self._model.stop_predicting = True

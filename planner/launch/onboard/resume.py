"""`keras.Model.fit`, wrapped: goes on where the last checkpoint was, to the batch, and keeps new ones.

A script may call `fit` several times: the k-th call has the k-th folder. One that came to its end is not
trained again: its weights are loaded and its history returned. An epoch that was left in the middle is
trained for the batches that it still lacks (of an order of its own, when the data are shuffled), so that no
step is missing and none is done twice.

Limits: a generator of unknown length starts its first epoch anew; callbacks that count epochs of patience by
themselves (`EarlyStopping`) start counting anew after a restart.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .callback import Guard
from .checkpoint import Checkpoints, Progress
from .timing import StepClock
from .wishes import Wishes

__all__ = ["wrap_fit"]


def wrap_fit(folder: Path, *, wishes: Wishes, clock: StepClock) -> None:
    """Let every outermost `fit` of this process resume and keep checkpoints.

    Args:
        folder: Of all checkpoints of the run; outlives the machine.
        wishes: What the surroundings want.
        clock: Times the steps.
    """
    import keras

    original = keras.Model.fit
    wrapped = _Fits(original, folder, wishes, clock)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapped(self, *args, **kwargs)

    keras.Model.fit = fit


class _Fits:
    """The calls of `fit` of this process, counted."""

    def __init__(self, original: Callable[..., Any], folder: Path, wishes: Wishes, clock: StepClock) -> None:
        self._original, self._folder, self._wishes, self._clock = original, folder, wishes, clock
        self._count = 0

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a call of `fit`."""
        if self._wishes.in_fit:
            return self._original(model, *args, **kwargs)
        self._wishes.in_fit = True
        try:
            folder = self._folder / f"fit-{self._count}"
            self._count += 1
            return self._resumed(model, Checkpoints(folder), *args, **kwargs)
        finally:
            self._wishes.in_fit = False

    def _resumed(self, model: Any, checkpoints: Checkpoints, *args: Any, **kwargs: Any) -> Any:
        """Run `fit` from where it was left."""
        bound = inspect.signature(self._original).bind(model, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.pop("self", None)
        loaded = checkpoints.load()
        first = int(given["initial_epoch"])
        start, weights = loaded or (Progress(epoch=first, batch=0, steps=0), None)
        guard = Guard(checkpoints, start=start, weights=weights, wishes=self._wishes, clock=self._clock)
        if start.finished:  # no epoch at all: the model is built, and the weights are loaded
            given |= {"epochs": first, "callbacks": [guard]}
            return _with_history(self._original(model, **given), start)
        given["callbacks"] = _in_front(guard, given["callbacks"])
        result = self._rest(model, given, start)
        guard.finish()
        return _with_history(result, guard.progress)

    def _rest(self, model: Any, given: dict[str, Any], start: Progress) -> Any:
        """Train what is left: of the epoch that was begun, then the other epochs."""
        epoch = start.epoch
        total = start.steps_per_epoch
        if start.batch and total is not None and epoch < given["epochs"]:
            if total > start.batch:
                rest = {"initial_epoch": epoch, "epochs": epoch + 1, "steps_per_epoch": total - start.batch}
                result = self._original(model, **{**given, **rest})
                if model.stop_training:
                    return result
            epoch += 1
        return self._original(model, **{**given, "initial_epoch": min(epoch, given["epochs"])})


def _in_front(guard: Guard, callbacks: Any) -> Any:
    """Return the user's callbacks with the guard before them."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks.insert(0, guard)
        return callbacks
    others = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
    return [guard, *others]


def _with_history(result: Any, progress: Progress) -> Any:
    """Return what `fit` returned with the epochs of earlier machines in its history."""
    if result is not None and hasattr(result, "history"):
        result.history = {name: list(values) for name, values in progress.history.items()}
        longest = max((len(values) for values in progress.history.values()), default=0)
        result.epoch = list(range(progress.epoch - longest, progress.epoch))
    return result

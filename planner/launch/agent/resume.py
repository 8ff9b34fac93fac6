"""Wrapper of `keras.Model.fit` that resumes from the last checkpoint and saves new ones.

A script may call `fit` several times: the k-th call uses the k-th folder. A complete call is not trained again:
its weights are loaded and its history is returned. In an incomplete epoch, trained batches are drawn again,
compared with their fingerprint and skipped. If they differ, the epoch restarts with the weights of its
beginning. The log and `resumed.json` record which of both happened.

Limitation: callbacks with patience (`EarlyStopping`) start counting from zero after a restart.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType
from typing import Any

from .callback import CheckpointCallback
from .checkpoint import Checkpoints, ControlFlags, Progress, write_json
from .order import BatchOrder, OrderChangedError
from .state import load_state, restore_random_states
from .timing import StepClock

RESUMED = "resumed.json"


def wrap_fit(folder: Path, *, control: ControlFlags, clock: StepClock) -> None:
    """Make every outermost `fit` of this process resume and save checkpoints.

    Args:
        folder: Folder of the run's checkpoints, which outlives the machine.
        control: Stop and checkpoint requests.
        clock: Timer of the steps.
    """
    import keras

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
            self._say(_restarted(callback.start, again.start))
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
        """Run the remaining epochs."""
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
        path = self._folder / RESUMED
        said = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        write_json(path, [*said, text])


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
    missing = (
        "; metrics of this epoch are those of its later batches, and not in the history" if partial else ""
    )
    return f"{text} were trained{missing}"


def _restarted(lost: Progress, start: Progress) -> str:
    """Describe a restart at the beginning of an epoch.

    Example:
        >>> _restarted(Progress(epoch=2, batch=22, steps=102), Progress(epoch=2, batch=0, steps=80))
        'epoch 3 starts again from its first batch: the data came in another order; 22 trained batches are dropped'
    """
    return (
        f"epoch {start.epoch + 1} starts again from its first batch: the data came in another order;"
        f" {lost.steps - start.steps} trained batches are dropped"
    )


def _in_front(callback: CheckpointCallback, callbacks: Any) -> Any:
    """Return the user's callbacks with the checkpoint callback before them."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        others = [
            callback for callback in callbacks.callbacks if not isinstance(callback, CheckpointCallback)
        ]
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

"""The step of a Keras trainer without its loop: the function that `fit()` compiled, on a batch that stays put."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

__all__ = ["Stepper", "fetch", "stepper_of"]

Mode = Literal["train", "infer"]


@dataclass(frozen=True, slots=True)
class Stepper:
    """A step that can be started and waited for.

    Args:
        step: Starts one call of the compiled function.
        synchronize: Waits for all that was started.
        steps: Optimizer steps of one call (`steps_per_execution`) [-].
    """

    step: Callable[[], None]
    synchronize: Callable[[], None]
    steps: int = 1


def stepper_of(model: Any, batch: Any, *, backend: str, mode: Mode) -> Stepper:
    """Return the trainer's own compiled step on one batch.

    Reading data, copying it, callbacks and logs are not in it. The model is worn out afterwards: its weights move
    on in the stepper alone.

    Args:
        model: Compiled, and run once by `fit()` or `predict()`.
        batch: `(x, y)`, or `(x, y, sample_weight)`, as NumPy arrays.
        backend: Keras's.
        mode: The training step, or a prediction.
    """
    import keras

    data = keras.tree.map_structure(keras.ops.convert_to_tensor, batch)
    if backend == "jax":
        return _jax(model, data, mode)
    return _other(model, data, backend, mode)


def _function(model: Any, mode: Mode) -> Any:
    if mode == "train":
        model.make_train_function()
        return model.train_function
    model.make_predict_function()
    return model.predict_function


def _jax(model: Any, data: Any, mode: Mode) -> Stepper:
    """Step from state to state, each donated to the next step, as `fit()` does."""
    import jax

    function = _function(model, mode)
    groups = [model.trainable_variables, model.non_trainable_variables]
    if mode == "train":
        groups += [model.optimizer.variables, model.metrics_variables]
    kept: list[Any] = [tuple([variable.value for variable in group] for group in groups), None]
    batches = repeat(data)

    def step() -> None:
        kept[1], kept[0] = function(kept[0], batches)

    return Stepper(step, lambda: jax.block_until_ready(kept), int(model.steps_per_execution))


def _other(model: Any, data: Any, backend: str, mode: Mode) -> Stepper:
    function, steps = _function(model, mode), int(model.steps_per_execution)
    batches, logs = [data] * steps, [None]

    def step() -> None:
        logs[0] = function(batches)

    return Stepper(step, (lambda: fetch(logs[0])) if backend == "tensorflow" else _wait_for_torch(), steps)


def _wait_for_torch() -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


def fetch(values: Any) -> None:
    """Copy whatever tensors there are to the host, which waits for them."""
    import keras

    for leaf in keras.tree.flatten(values):
        if hasattr(leaf, "numpy"):
            leaf.numpy()

"""The compiled step of a Keras trainer without its loop, on a fixed batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

__all__ = ["Stepper", "build_stepper", "copy_to_host"]

Mode = Literal["train", "infer"]


@dataclass(frozen=True, slots=True)
class Stepper:
    """A step that can be started and synchronized.

    Args:
        step: Starts one call of the compiled function.
        synchronize: Waits for all started steps.
        steps: Optimizer steps per call (`steps_per_execution`) [-].
    """

    step: Callable[[], None]
    synchronize: Callable[[], None]
    steps: int = 1


def build_stepper(model: Any, batch: Any, *, backend: str, mode: Mode) -> Stepper:
    """Build a stepper from the trainer's own compiled step on one batch.

    It excludes reading and copying data, callbacks and logs. The model is unusable afterwards: its weights
    are updated only within the stepper.

    Args:
        model: Compiled model, run once by `fit()` or `predict()`.
        batch: `(x, y)`, or `(x, y, sample_weight)`, as NumPy arrays.
        backend: Keras backend.
        mode: Training or inference step.
    """
    import keras

    data = keras.tree.map_structure(keras.ops.convert_to_tensor, batch)
    if backend == "jax":
        return _build_jax_stepper(model, data, mode)
    return _build_synchronous_stepper(model, data, backend, mode)


def _get_function(model: Any, mode: Mode) -> Any:
    if mode == "train":
        model.make_train_function()
        return model.train_function
    model.make_predict_function()
    return model.predict_function


def _build_jax_stepper(model: Any, data: Any, mode: Mode) -> Stepper:
    """Step from state to state, each donated to the next step, as in `fit()`."""
    import jax

    function = _get_function(model, mode)
    groups = [model.trainable_variables, model.non_trainable_variables]
    if mode == "train":
        groups += [model.optimizer.variables, model.metrics_variables]
    kept: list[Any] = [tuple([variable.value for variable in group] for group in groups), None]
    batches = repeat(data)

    def step() -> None:
        kept[1], kept[0] = function(kept[0], batches)

    return Stepper(step, lambda: jax.block_until_ready(kept), int(model.steps_per_execution))


def _build_synchronous_stepper(model: Any, data: Any, backend: str, mode: Mode) -> Stepper:
    function, steps = _get_function(model, mode), int(model.steps_per_execution)
    batches, logs = [data] * steps, [None]

    def step() -> None:
        logs[0] = function(batches)

    return Stepper(
        step, (lambda: copy_to_host(logs[0])) if backend == "tensorflow" else _get_torch_synchronize(), steps
    )


def _get_torch_synchronize() -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


def copy_to_host(values: Any) -> None:
    """Copy all tensors in a structure to the host, which waits for them."""
    import keras

    for leaf in keras.tree.flatten(values):
        if hasattr(leaf, "numpy"):
            leaf.numpy()

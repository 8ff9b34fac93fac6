"""State of a model as files: weights, optimizer, random seeds, metrics, and random states of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["SavedState", "build_model", "load_state", "restore_metrics", "restore_model", "save_model"]

STATE = "state.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """State in a checkpoint.

    Args:
        weights: Path of the weights.
        seeds: States of the model's seed generators.
        metrics: Variables of its metrics, within an epoch.
        random: Random states by moment.
    """

    weights: str
    seeds: list[Any]
    metrics: list[Any]
    random: dict[str, dict[str, Any]] = field(default_factory=dict)


def save_model(model: Any, path: str, *, random: Mapping[str, Mapping[str, Any]]) -> None:
    """Save weights and optimizer to a file, and the rest of the state to `state.npz` in its folder."""
    model.save_weights(path)
    arrays = {f"seed/{number:06d}": variable for number, variable in enumerate(_seeds(model))}
    arrays |= {f"metric/{number:06d}": variable for number, variable in enumerate(model.metrics_variables)}
    arrays |= {f"{when}/{name}": state for when, states in random.items() for name, state in states.items()}
    np.savez(Path(path).with_name(STATE), **{name: _array(value) for name, value in arrays.items()})


def load_state(path: str) -> SavedState:
    """Load the `state.npz` that `save_model` wrote."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(Path(path).with_name(STATE)) as file:
        for key in file.files:
            when, _, name = key.partition("/")
            found.setdefault(when, {})[name] = file[key]
    seeds, metrics = (list(found.pop(kind, {}).values()) for kind in ("seed", "metric"))
    return SavedState(weights=path, seeds=seeds, metrics=metrics, random=found)


def build_model(model: Any, iterator: Any) -> None:
    """Create the variables of a model that Keras would build at the first step (TensorFlow), without a batch."""
    import keras

    spec = getattr(getattr(iterator, "_distributed_dataset", None), "element_spec", None)
    if spec is not None:
        model._symbolic_build(
            data_batch=keras.tree.map_structure(
                lambda leaf: SimpleNamespace(shape=tuple(leaf.shape), dtype=leaf.dtype.name), spec
            )
        )


def restore_model(model: Any, state: SavedState) -> None:
    """Restore weights, optimizer and, if their shapes match, seeds of a built model."""
    model.load_weights(state.weights)
    _assign(_seeds(model), state.seeds)


def restore_metrics(model: Any, state: SavedState) -> bool:
    """Restore the metrics of a built model; return whether they match the saved ones."""
    return _assign(model.metrics_variables, state.metrics)


def _assign(variables: list[Any], values: list[Any]) -> bool:
    """Assign values to variables, all or none."""
    fits = [value.shape for value in values] == [tuple(variable.shape) for variable in variables]
    if fits:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return fits


def _array(value: Any) -> Any:
    """Convert a variable or an array to NumPy."""
    import keras

    return value if isinstance(value, np.ndarray) else keras.ops.convert_to_numpy(value)


def _seeds(model: Any) -> list[Any]:
    """Return the non-weight variables: the states of the model's seed generators."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.non_trainable_variables if id(variable) not in weights]

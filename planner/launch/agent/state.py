"""A model's whole state as files: what `save_weights` keeps, and what it does not: random seeds, metrics and the
random states that order the data."""

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
    """What a checkpoint holds beside its progress.

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
    """Write weights and optimizer to a file, and everything else that training goes on from beside it."""
    model.save_weights(path)
    arrays = {f"seed/{number:06d}": variable for number, variable in enumerate(_seeds(model))}
    arrays |= {f"metric/{number:06d}": variable for number, variable in enumerate(model.metrics_variables)}
    arrays |= {f"{when}/{name}": state for when, states in random.items() for name, state in states.items()}
    np.savez(Path(path).with_name(STATE), **{name: _array(value) for name, value in arrays.items()})


def load_state(path: str) -> SavedState:
    """Read what `save_model` wrote beside the weights."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(Path(path).with_name(STATE)) as file:
        for key in file.files:
            when, _, name = key.partition("/")
            found.setdefault(when, {})[name] = file[key]
    seeds, metrics = (list(found.pop(kind, {}).values()) for kind in ("seed", "metric"))
    return SavedState(weights=path, seeds=seeds, metrics=metrics, random=found)


def build_model(model: Any, iterator: Any) -> None:
    """Give a model its variables where Keras waits for the first step (TensorFlow); no batch is drawn."""
    import keras

    spec = getattr(getattr(iterator, "_distributed_dataset", None), "element_spec", None)
    if spec is not None:
        model._symbolic_build(
            data_batch=keras.tree.map_structure(
                lambda leaf: SimpleNamespace(shape=tuple(leaf.shape), dtype=leaf.dtype.name), spec
            )
        )


def restore_model(model: Any, state: SavedState) -> None:
    """Set weights, optimizer and seeds of a model that is built; seeds only where they fit."""
    model.load_weights(state.weights)
    _assign(_seeds(model), state.seeds)


def restore_metrics(model: Any, state: SavedState) -> bool:
    """Set the metrics of a model that is built; False when they are not the ones that were saved."""
    return _assign(model.metrics_variables, state.metrics)


def _assign(variables: list[Any], values: list[Any]) -> bool:
    """Assign values to variables, all or none."""
    fits = [value.shape for value in values] == [tuple(variable.shape) for variable in variables]
    if fits:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return fits


def _array(value: Any) -> Any:
    """Return a variable or an array as NumPy has it."""
    import keras

    return value if isinstance(value, np.ndarray) else keras.ops.convert_to_numpy(value)


def _seeds(model: Any) -> list[Any]:
    """Return the variables that are no weights: the states of the model's seed generators."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.non_trainable_variables if id(variable) not in weights]

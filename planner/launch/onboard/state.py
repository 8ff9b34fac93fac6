"""A model's whole state as files: what `save_weights` keeps, and the random seeds, which it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["load_model", "save_model"]

SEEDS = "seeds.npz"


def save_model(model: Any, path: str) -> None:
    """Write weights and optimizer to a file, and the states of seed generators beside it."""
    model.save_weights(path)
    states = [np.asarray(variable) for variable in _seeds(model)]
    np.savez(Path(path).with_name(SEEDS), *states)


def load_model(model: Any, path: str) -> None:
    """Read what `save_model` wrote into a model that is built; seeds only where they fit."""
    model.load_weights(path)
    seeds = _seeds(model)
    with np.load(Path(path).with_name(SEEDS)) as file:
        states = [file[name] for name in file.files]
    if [state.shape for state in states] == [tuple(variable.shape) for variable in seeds]:
        for variable, state in zip(seeds, states, strict=True):
            variable.assign(state)


def _seeds(model: Any) -> list[Any]:
    """Return the variables that are no weights: the states of the model's seed generators."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.non_trainable_variables if id(variable) not in weights]

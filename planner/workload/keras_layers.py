"""Layers that a Keras model is made of, and attributes and modules that are replaced for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def iterate_layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model without its inputs; models inside a model are not layers, theirs follow."""
    import keras

    layers = list(model._flatten_layers(include_self=False, recursive=False))
    yield from (one for one in layers if not isinstance(one, keras.Model | keras.layers.InputLayer))
    for inner in layers:
        if isinstance(inner, keras.Model):
            yield from iterate_layers(inner)


def group_variables(model: Any, *, train: bool) -> tuple[Any, Any, Any, Any]:
    """Return the variables of a step: trainable and others, then the optimizer's and metrics' if it trains."""
    trained = (model.optimizer.variables, model.metrics_variables) if train else ([], [])
    return (model.trainable_variables, model.non_trainable_variables, *trained)


def list_optimizers(model: Any) -> list[Any]:
    """Return the optimizers of a model: that of `compile()`, and those that it holds for its own `train_step`."""
    import keras

    held = vars(model).values()
    return list(dict.fromkeys(one for one in held if isinstance(one, keras.optimizers.Optimizer)))


@contextmanager
def replacing(*replacements: tuple[Any, str, Any]) -> Iterator[None]:
    """Context in which attributes (owner, name, value) have other values or are added, past the tracking of Keras.

    Example:
        >>> import math
        >>> with replacing((math, "tau", 6)):
        ...     print(math.tau)
        6
    """
    absent = object()
    before = [(owner, name, vars(owner).get(name, absent)) for owner, name, _ in replacements]
    try:
        for owner, name, value in replacements:
            _get_setters(owner)[0](owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            put, remove = _get_setters(owner)
            if value is not absent:
                put(owner, name, value)
            elif name in vars(owner):
                remove(owner, name)


def _get_setters(owner: Any) -> tuple[Callable[[Any, str, Any], None], Callable[[Any, str], None]]:
    is_plain = isinstance(owner, type | ModuleType)
    return (setattr, delattr) if is_plain else (object.__setattr__, object.__delattr__)


def import_with(stand_ins: Mapping[str, Any], package: str) -> Any:
    """Import a package while others have stand-ins (None: not installed); with the real ones if it fails so."""
    put = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(put)
    try:
        return import_module(package)
    except Exception:  # a version that needs one of them: it says so in various ways
        if not put:
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
    finally:
        for name, module in put.items():
            if sys.modules.get(name, module) is module:
                sys.modules.pop(name, None)
    return import_module(package)

"""Layers that a Keras model is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def iterate_models(model: Any) -> Iterator[Any]:
    """Yield a model and the models nested in it."""
    import keras

    yield model
    for layer in model._flatten_layers(include_self=False, recursive=False):
        if isinstance(layer, keras.Model):
            yield from iterate_models(layer)


def iterate_layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model without its inputs; models inside a model are not layers, theirs are."""
    import keras

    for owner in iterate_models(model):
        for layer in owner._flatten_layers(include_self=False, recursive=False):
            if not isinstance(layer, keras.Model | keras.layers.InputLayer):
                yield layer

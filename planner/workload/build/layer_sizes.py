"""Sizes of the layers of a Keras model: the units in which sharded parameters are gathered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model import LayerSizes


def find_layer_sizes(model: Any) -> LayerSizes:
    """Return the sizes of the layers that hold parameters; a shared variable counts for its first layer.

    Args:
        model: A built Keras model, whose variables may be abstract.
    """
    seen: set[int] = set()
    parameters, trainable = [], []
    for variables in _iter_variables(model):
        new = [one for one in variables if id(one) not in seen]
        seen.update(map(id, new))
        if new:
            parameters.append(_compute_bytes(new))
            trainable.append(_compute_bytes([one for one in new if one.trainable]))
    return LayerSizes(parameter_bytes=tuple(parameters), trainable_bytes=tuple(trainable))


def _iter_variables(model: Any) -> Iterator[list[Any]]:
    """Yield the trainable and frozen parameters of each layer, those of the model itself first.

    Keras lists a variable under `_trainable_variables` if it was created to be trained, and keeps it there when it
    is frozen; statistics and seeds are elsewhere, and so are integers and scales of quantized layers.
    """
    import keras

    yield list(model._trainable_variables)
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _iter_variables(layer)
        else:
            yield [one for part in layer._flatten_layers() for one in _list_parameters(part)]


def _list_parameters(layer: Any) -> list[Any]:
    quantized = layer.quantization_mode in ("int8", "int4")
    return [*layer._trainable_variables, *(layer._non_trainable_variables if quantized else ())]


def _compute_bytes(variables: list[Any]) -> int:
    from ..trace.jax.step import compute_array_bytes

    return sum(compute_array_bytes(one.shape, one.dtype) for one in variables)

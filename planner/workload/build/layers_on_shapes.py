"""Quantization and LoRA of layers whose weights have no values: Keras's own methods, run on shapes.

`quantize()` of a layer computes integers and scales from its weights, and `enable_lora()` unpacks an int4 kernel
to learn its shape. The variables that they create do not depend on the values.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import keras

from ...errors import UsageError
from ..keras_layers import replacing

CALIBRATED = ("gptq", "awq")


@contextmanager
def change_layers_on_shapes() -> Iterator[None]:
    """Let layers that are created in this context be quantized and adapted without values; JAX backend only.

    Models are left out: their methods call those of their layers.
    """
    pending, seen = list(keras.layers.Layer.__subclasses__()), {keras.Model}
    wrapped: list[tuple[type, str, Callable[..., None]]] = []
    while pending:
        owner = pending.pop()
        if owner not in seen:
            seen.add(owner)
            pending += owner.__subclasses__()
            own = vars(owner)
            wrapped += [(owner, name, wrap(own[name])) for name, wrap in _WRAPPERS.items() if name in own]
    with replacing(*wrapped):
        yield


def _quantize_on_shapes(method: Callable[..., None]) -> Callable[..., None]:
    """Return `quantize()` that runs while JAX traces: weights are drawn and rounded as shapes, and not assigned.

    Quantizers of the user's own that need arrays of NumPy get values.
    """

    def pack(unpacked: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, tuple[int, ...], int]:
        """Return zeros in the shape of Keras's `pack_int4`, two numbers a byte, with it and the old length."""
        shape = list(unpacked.shape)
        shape[axis] = (shape[axis] + 1) // 2
        return jax.numpy.zeros(shape, dtype), tuple(shape), unpacked.shape[axis]

    @functools.wraps(method)
    def quantize(*args: Any, **kwargs: Any) -> None:
        from keras.src import backend, quantizers

        def run() -> None:
            with keras.StatelessScope():
                method(*args, **kwargs)

        try:
            with replacing(
                (quantizers.quantizers, "np", jax.numpy),  # Keras computes with NumPy to save memory of a GPU
                (backend, "convert_to_numpy", backend.convert_to_tensor),
                (quantizers, "pack_int4", pack),
                (gc, "collect", lambda *generation: 0),  # Keras looks for garbage at each weight that it deletes
            ):
                jax.eval_shape(run)
        except jax.errors.TracerArrayConversionError:
            method(*args, **kwargs)

    return quantize


def _adapt_on_shapes(method: Callable[..., None]) -> Callable[..., None]:
    """Return `enable_lora()` that unpacks int4 weights as symbolic tensors, like Keras's `unpack_int4`."""

    def unpack(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
        shape = list(packed.shape)
        shape[axis] = orig_len
        return keras.KerasTensor(shape, dtype)

    @functools.wraps(method)
    def enable_lora(*args: Any, **kwargs: Any) -> None:
        from keras.src import quantizers

        with replacing((quantizers, "unpack_int4", unpack)):
            method(*args, **kwargs)

    return enable_lora


def _refuse_calibration(method: Callable[..., None]) -> Callable[..., None]:
    """Return `quantized_build()` that refuses weights which Keras rounds by the activations of given data."""

    @functools.wraps(method)
    def quantized_build(layer: Any, shape: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        if mode in CALIBRATED:
            raise UsageError(
                f"{mode.upper()} is not planned: Keras calibrates it on data, with the values of the weights",
                hint='plan `quantize("int4")` or `quantize("int8")`, by the bits of its weights',
            )
        method(layer, shape, mode, *args, **kwargs)

    return quantized_build


_WRAPPERS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "quantize": _quantize_on_shapes,
    "enable_lora": _adapt_on_shapes,
    "quantized_build": _refuse_calibration,
}

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
    """Let layers that are created in this context be quantized and adapted without values; JAX backend only."""
    pending, seen = keras.layers.Layer.__subclasses__(), {keras.Model}  # whose methods call those of its layers
    wrapped: list[tuple[type, str, Callable[..., None]]] = []
    while pending:
        owner = pending.pop()
        if owner not in seen:
            seen.add(owner)
            pending += owner.__subclasses__()
            own = vars(owner)
            wrapped += [(owner, name, _wrap(own[name], run)) for name, run in _INSTEAD.items() if name in own]
    with replacing(*wrapped):
        yield


def _wrap(method: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        run(method, *args, **kwargs)

    return wrapped


def _quantize(method: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Run `quantize()` while JAX traces: weights are drawn and rounded as shapes, and not assigned."""
    from keras.src import backend, quantizers

    def pack(unpacked: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, tuple[int, ...], int]:
        """Return zeros in the shape of Keras's `pack_int4`, two numbers a byte, with it and the old length."""
        shape = list(unpacked.shape)
        shape[axis] = (shape[axis] + 1) // 2
        return jax.numpy.zeros(shape, dtype), tuple(shape), unpacked.shape[axis]

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
    except jax.errors.TracerArrayConversionError:  # a quantizer of the user's own needs arrays of NumPy
        method(*args, **kwargs)


def _enable_lora(method: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Run `enable_lora()` with int4 weights unpacked as symbolic tensors, like Keras's `unpack_int4`."""
    from keras.src import quantizers

    def unpack(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
        shape = list(packed.shape)
        shape[axis] = orig_len
        return keras.KerasTensor(shape, dtype)

    with replacing((quantizers, "unpack_int4", unpack)):
        method(*args, **kwargs)


def _build_quantized(
    method: Callable[..., None], layer: Any, shape: Any, mode: str, *args: Any, **kwargs: Any
) -> None:
    """Run `quantized_build()`, and refuse weights which Keras rounds by the activations of given data."""
    if mode in CALIBRATED:
        raise UsageError(
            f"{mode.upper()} is not planned: Keras calibrates it on data, with the values of the weights",
            hint='plan `quantize("int4")` or `quantize("int8")`, by the bits of its weights',
        )
    method(layer, shape, mode, *args, **kwargs)


_INSTEAD = {"quantize": _quantize, "enable_lora": _enable_lora, "quantized_build": _build_quantized}

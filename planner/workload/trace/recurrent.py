"""Recurrent layers that a library could run whole, named while they are traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .names import RECURRENT

__all__ = ["recurrent_layers_named"]


@contextlib.contextmanager
def recurrent_layers_named(model: Any) -> Iterator[None]:
    """While open, LSTMs and GRUs that cuDNN supports run their loop under a scope that says so.

    An LSTM is traced as the loop even where JAX has a GPU, on which Keras would call cuDNN: a call says nothing
    of the work inside. How the loop is run is decided where a time is predicted.
    """
    import keras

    kinds = {keras.layers.LSTM: "lstm", keras.layers.GRU: "gru"}
    found = [(layer, kinds[type(layer)]) for layer in model._flatten_layers() if type(layer) in kinds]
    with contextlib.ExitStack() as stack:
        for layer, kind in found:
            stack.enter_context(_named(layer, kind))
        yield


@contextlib.contextmanager
def _named(layer: Any, kind: str) -> Iterator[None]:
    asked = layer.use_cudnn
    named = _naming(layer.inner_loop, kind, supported=bool(asked) and _is_supported(layer))
    object.__setattr__(layer, "inner_loop", named)
    object.__setattr__(layer, "use_cudnn", False if kind == "lstm" else asked)
    try:
        yield
    finally:
        object.__delattr__(layer, "inner_loop")
        object.__setattr__(layer, "use_cudnn", asked)


def _naming(inner_loop: Callable[..., Any], kind: str, *, supported: bool) -> Callable[..., Any]:
    def run(sequences: Any, initial_state: Any, mask: Any, training: Any = False) -> Any:
        import jax

        masked = any(part is not None for part in (mask if isinstance(mask, list | tuple) else [mask]))
        name = f"{RECURRENT}{kind}" if supported and not masked else ""
        with jax.named_scope(name) if name else contextlib.nullcontext():
            return inner_loop(sequences, initial_state, mask, training=training)

    return run


def _is_supported(layer: Any) -> bool:
    """Return whether Keras would hand a layer to cuDNN on some backend (`cudnn_ok` in each of them).

    Sequences with a mask are left to the loop on JAX and PyTorch, and here; TensorFlow takes some of them.
    """
    import keras

    return (
        layer.activation is keras.activations.tanh
        and layer.recurrent_activation is keras.activations.sigmoid
        and layer.use_bias
        and not layer.unroll
        and not layer.recurrent_dropout
        and getattr(layer, "reset_after", True)
    )

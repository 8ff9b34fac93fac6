"""Recurrent layers supported by cuDNN, marked during tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .scopes import RECURRENT

__all__ = ["name_recurrent_layers"]


@contextlib.contextmanager
def name_recurrent_layers(model: Any) -> Iterator[None]:
    """Context in which LSTMs and GRUs supported by cuDNN run their loop in a marked scope.

    An LSTM is traced as a loop even if JAX has a GPU, where Keras would call cuDNN, because a library call
    hides the work. The prediction decides how the loop is executed.
    """
    import keras

    kinds = {keras.layers.LSTM: "lstm", keras.layers.GRU: "gru"}
    found = [(layer, kinds[type(layer)]) for layer in model._flatten_layers() if type(layer) in kinds]
    with contextlib.ExitStack() as stack:
        for layer, kind in found:
            stack.enter_context(_name_layer(layer, kind))
        yield


@contextlib.contextmanager
def _name_layer(layer: Any, kind: str) -> Iterator[None]:
    asked = layer.use_cudnn
    named = _wrap_inner_loop(layer.inner_loop, kind, supported=bool(asked) and _is_supported(layer))
    object.__setattr__(layer, "inner_loop", named)
    object.__setattr__(layer, "use_cudnn", False if kind == "lstm" else asked)
    try:
        yield
    finally:
        object.__delattr__(layer, "inner_loop")
        object.__setattr__(layer, "use_cudnn", asked)


def _wrap_inner_loop(inner_loop: Callable[..., Any], kind: str, *, supported: bool) -> Callable[..., Any]:
    def run(sequences: Any, initial_state: Any, mask: Any, training: Any = False) -> Any:
        import jax

        masked = any(part is not None for part in (mask if isinstance(mask, list | tuple) else [mask]))
        name = f"{RECURRENT}{kind}" if supported and not masked else ""
        with jax.named_scope(name) if name else contextlib.nullcontext():
            return inner_loop(sequences, initial_state, mask, training=training)

    return run


def _is_supported(layer: Any) -> bool:
    """Return whether Keras would use cuDNN for a layer on some backend (`cudnn_ok` in each).

    Masked sequences use the loop on JAX and PyTorch, and here; TensorFlow supports some of them.
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

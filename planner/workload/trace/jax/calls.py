"""Numbering of `keras.ops` calls during tracing: each call is one kernel in a framework.

Calls without a TensorFlow kernel are marked: without XLA it launches their parts.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .scopes import CALL, COMPOSED

__all__ = ["number_calls"]

# Composed of several TensorFlow functions in keras/src/backend/tensorflow/nn.py of Keras 3.15, or of one composed
# itself (`tf.nn.gelu`, `tf.nn.silu`); PyTorch has a kernel for each. Normalizations are in keras/src/ops/nn.py.
_NORMALIZATIONS = ("_layer_normalization", "_rms_normalization")
_COMPOSED = {
    "celu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh", "hard_shrink", "soft_shrink", "silu",
    "tanh_shrink", *_NORMALIZATIONS,
}  # fmt: skip


@contextlib.contextmanager
def number_calls() -> Iterator[None]:
    """Context in which functions of Keras's array and network backend run in numbered scopes.

    Layer normalization, which is a function of `keras.ops` itself, is included. Gradients keep the scope of
    their forward operation. JAX backend only.
    """
    from keras.src import backend
    from keras.src.ops import nn

    numbers = itertools.count(1)
    modules = (backend.nn, backend.numpy)
    found = [(module, name, one) for module in modules for name, one in _iter_functions(module)]
    found += [(nn, name, getattr(nn, name)) for name in _NORMALIZATIONS if hasattr(nn, name)]
    try:
        for module, name, one in found:
            setattr(module, name, _wrap_numbered(one, numbers, composed=name in _COMPOSED))
        yield
    finally:
        for module, name, one in found:
            setattr(module, name, one)


def _iter_functions(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, one in vars(module).items():
        if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_"):
            yield name, one


def _wrap_numbered(
    function: Callable[..., Any], numbers: Iterator[int], *, composed: bool
) -> Callable[..., Any]:
    import jax

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        name = f"{CALL}{next(numbers)}"
        with jax.named_scope(f"{name}/{COMPOSED}" if composed else name):
            return function(*args, **kwargs)

    return run

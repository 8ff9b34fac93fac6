"""Calls of `keras.ops`, numbered while they are traced: what a framework runs as one kernel each."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .names import CALL

__all__ = ["calls_numbered"]


@contextlib.contextmanager
def calls_numbered() -> Iterator[None]:
    """While open, functions of Keras's backend for arrays and networks run under a scope with a number of its own.

    Gradients keep the scope of what they are the gradient of. Keras on the JAX backend only.
    """
    from keras.src import backend

    numbers = itertools.count(1)
    modules = (backend.nn, backend.numpy)
    found = [(module, name, one) for module in modules for name, one in _functions(module)]
    try:
        for module, name, one in found:
            setattr(module, name, _numbered(one, numbers))
        yield
    finally:
        for module, name, one in found:
            setattr(module, name, one)


def _functions(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, one in vars(module).items():
        if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_"):
            yield name, one


def _numbered(function: Callable[..., Any], numbers: Iterator[int]) -> Callable[..., Any]:
    import jax

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.named_scope(f"{CALL}{next(numbers)}"):
            return function(*args, **kwargs)

    return run

"""Construction of Keras models without allocating their weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["NOT_ABSTRACT", "abstract_variables"]

NOT_ABSTRACT = "this Keras version allocates weights while it builds, so the model must fit in memory"


@contextmanager
def abstract_variables() -> Iterator[bool]:
    """Let variables created from an initializer keep shape, type and initializer, but no value.

    Yields True if the installed Keras supports it. Otherwise yields False, and models are built normally,
    because the two private methods to replace do not exist.

    A value that is read is drawn from the initializer at that moment, so code that inspects weights still
    works. Variables created from a given value (an optimizer's step counter) have it.
    """
    import keras

    replaced = _list_methods(keras.Variable)
    if {name for _, name, _ in replaced} != set(_REPLACEMENTS):
        yield False
        return
    for owner, name, _ in replaced:
        setattr(owner, name, _REPLACEMENTS[name])
    try:
        yield True
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


def _list_methods(variable_class: type) -> list[tuple[type, str, Any]]:
    """Return every definition of the methods to replace: owner, name, function."""
    lineage = variable_class.__mro__
    return [(cls, name, vars(cls)[name]) for cls in lineage for name in _REPLACEMENTS if name in vars(cls)]


def _keep_initializer(variable: Any, initializer: Any) -> None:
    """Replace Keras's initialization outside scopes: keep the initializer, and determine the layout."""
    lay_out = getattr(variable, "_initialize_layout", None)  # of Keras on JAX
    if lay_out is not None:
        lay_out()
    variable._value = None
    variable._initializer = initializer


def _stay_abstract(variable: Any) -> None:
    """Replace Keras's initialization at the end of a scope for variables created in it."""


_REPLACEMENTS = {"_initialize_with_initializer": _keep_initializer, "_deferred_initialize": _stay_abstract}

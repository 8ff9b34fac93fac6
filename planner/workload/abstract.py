"""Building Keras models without allocating their weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["NOT_ABSTRACT", "abstract_variables"]

NOT_ABSTRACT = "this Keras version allocates weights while it builds, so the model must fit in memory"


@contextmanager
def abstract_variables() -> Iterator[bool]:
    """Let variables that come from an initializer keep shape, type and initializer, and no value.

    Yields True when it works with the installed Keras; False when models are built the ordinary way, since
    the two (private) methods that it replaces are not there.

    A value that is read nevertheless is drawn from the initializer at that moment, so code that looks at
    weights keeps working. Variables created from a given value (an optimizer's step counter) have it.
    Unlike inside `keras.StatelessScope(initialize_variables=False)`, optimizers can be created, weights
    assigned and models called; the variables stay abstract when the block ends.
    """
    import keras

    replaced = _methods(keras.Variable)
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


def _methods(variable_class: type) -> list[tuple[type, str, Any]]:
    """Return every definition of the methods to replace: owner, name, function."""
    lineage = variable_class.__mro__
    return [(cls, name, vars(cls)[name]) for cls in lineage for name in _REPLACEMENTS if name in vars(cls)]


def _keep_initializer(variable: Any, initializer: Any) -> None:
    """What Keras calls to draw a variable's first value, outside any scope; where it lies is settled here, too."""
    lay_out = getattr(variable, "_initialize_layout", None)  # of Keras on JAX
    if lay_out is not None:
        lay_out()
    variable._value = None
    variable._initializer = initializer


def _stay_abstract(variable: Any) -> None:
    """What Keras calls when a scope ends, for variables that were created inside it."""


_REPLACEMENTS = {"_initialize_with_initializer": _keep_initializer, "_deferred_initialize": _stay_abstract}

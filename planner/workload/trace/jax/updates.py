"""Tracing of equal variables' updates only once, since most of a trace is repeated optimizer work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .scopes import REPEAT

__all__ = ["trace_equal_updates_once"]

# Optimizers whose update depends only on a variable's shape and type, unlike Muon and possibly custom ones.
_UNIFORM = {
    "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "Ftrl", "Lamb", "Lion", "RMSprop", "SGD",
}  # fmt: skip
_HOOK = "_backend_update_step"


@contextlib.contextmanager
def trace_equal_updates_once(optimizer: Any) -> Iterator[None]:
    """Context in which the optimizer updates one variable of each shape and type, in a scope with their
    count.

    The other variables are assigned their gradient, so that it is still computed. Optimizers not known to
    update equal variables equally, or with another structure in Keras, are left unchanged.
    """
    target = getattr(optimizer, "inner_optimizer", optimizer)
    if not _is_uniform(target):
        yield
        return

    def update(gradients: Any, variables: Any, learning_rate: Any) -> None:
        import jax

        for members in _group_equal(gradients, variables):
            with jax.named_scope(f"{REPEAT}{len(members)}"):
                target.update_step(*members[0], learning_rate)
            for gradient, variable in members[1:]:
                variable.assign(gradient)

    object.__setattr__(target, _HOOK, update)
    try:
        yield
    finally:
        object.__delattr__(target, _HOOK)


def _is_uniform(optimizer: Any) -> bool:
    """Return whether the optimizer is one of Keras's own whose update only loops over the variables."""
    kind = type(optimizer)
    base = next((c for c in kind.__mro__ if c.__name__ == "BaseOptimizer"), None)
    ours = kind.__module__.startswith("keras.") and kind.__name__ in _UNIFORM
    decays = getattr(optimizer, "weight_decay", None)  # changes each variable before its update
    return ours and not decays and hasattr(base, _HOOK) and getattr(kind, _HOOK) is getattr(base, _HOOK)


def _group_equal(gradients: Any, variables: Any) -> list[list[tuple[Any, Any]]]:
    """Group (gradient, variable) pairs by shape and type."""
    classes: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for gradient, variable in zip(gradients, variables, strict=True):
        own = getattr(variable, "overwrite_with_gradient", False)
        key = (type(gradient), str(gradient.dtype), tuple(variable.shape), str(variable.dtype), own)
        classes.setdefault(key, []).append((gradient, variable))
    return list(classes.values())

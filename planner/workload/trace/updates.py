"""Trace the update of equal variables once: most of a trace is the optimizer saying the same thing again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .names import REPEAT

__all__ = ["equal_updates_once"]

# Optimizers whose update of a variable depends on its shape and type alone. Muon and user's own may differ.
_UNIFORM = {
    "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "Ftrl", "Lamb", "Lion", "RMSprop", "SGD",
}  # fmt: skip
_HOOK = "_backend_update_step"


@contextlib.contextmanager
def equal_updates_once(optimizer: Any) -> Iterator[None]:
    """While open, the optimizer updates one variable of each shape and type, under a scope that counts them.

    The others are assigned their gradient, so that it is still computed. Optimizers that are not known to
    treat equal variables alike, or that Keras builds otherwise, are left as they are.
    """
    target = getattr(optimizer, "inner_optimizer", optimizer)
    if not _is_uniform(target):
        yield
        return

    def update(gradients: Any, variables: Any, learning_rate: Any) -> None:
        import jax

        for members in _alike(gradients, variables):
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
    """Return whether this is one of Keras's own whose update loops over the variables, nothing more."""
    kind = type(optimizer)
    base = next((c for c in kind.__mro__ if c.__name__ == "BaseOptimizer"), None)
    ours = kind.__module__.startswith("keras.") and kind.__name__ in _UNIFORM
    decays = getattr(optimizer, "weight_decay", None)  # changes each variable before its update
    return ours and not decays and hasattr(base, _HOOK) and getattr(kind, _HOOK) is getattr(base, _HOOK)


def _alike(gradients: Any, variables: Any) -> list[list[tuple[Any, Any]]]:
    """Return (gradient, variable) pairs, those of one shape and type together."""
    classes: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for gradient, variable in zip(gradients, variables, strict=True):
        own = getattr(variable, "overwrite_with_gradient", False)
        key = (type(gradient), str(gradient.dtype), tuple(variable.shape), str(variable.dtype), own)
        classes.setdefault(key, []).append((gradient, variable))
    return list(classes.values())

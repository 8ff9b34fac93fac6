"""Tracing of the update of variables: equal ones are traced once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...keras_layers import replacing
from .scopes import REPEAT

# Optimizers whose update depends only on a variable's shape and type, unlike Muon and possibly custom ones.
_UNIFORM = {"Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "Ftrl", "Lamb", "Lion", "RMSprop", "SGD"}
_HOOK = "_backend_update_step"


@contextlib.contextmanager
def trace_equal_updates_once(optimizer: Any) -> Iterator[None]:
    """Context in which the optimizer updates one variable of each shape and type, in a scope with their
    count.

    The other variables are assigned their gradient, so that it is still computed. With weight decay, which changes
    each variable before its update, the trace of one update is repeated for its equals. Optimizers not known to
    update equal variables equally, or with another structure in Keras, are left unchanged.
    """
    target = getattr(optimizer, "inner_optimizer", optimizer)
    if not _is_uniform(target):
        with _repeat_traced_updates(target) if _is_adamw(target) else contextlib.nullcontext():
            yield
        return

    def update(gradients: Any, variables: Any, learning_rate: Any) -> None:
        import jax

        for members in _group_equal(gradients, variables):
            with jax.named_scope(f"{REPEAT}{len(members)}"):
                target.update_step(*members[0], learning_rate)
            for gradient, variable in members[1:]:
                variable.assign(gradient)

    with replacing((target, _HOOK, update)):
        yield


def _is_adamw(optimizer: Any) -> bool:
    """Return whether the optimizer is Keras's AdamW, which updates a variable and its two moments."""
    kind = type(optimizer)
    moments = (getattr(optimizer, "_momentums", None), getattr(optimizer, "_velocities", None))
    return kind.__module__.startswith("keras.") and kind.__name__ == "AdamW" and None not in moments


@contextlib.contextmanager
def _repeat_traced_updates(adamw: Any) -> Iterator[None]:
    """Context in which the updates of equal variables are traced once, and inlined for each of them."""
    import jax
    import keras

    usual = adamw.update_step
    traced: dict[tuple[object, ...], Callable[..., Any]] = {}

    def list_state(variable: Any) -> list[Any]:
        index = adamw._get_variable_index(variable)
        moments = (adamw._momentums, adamw._velocities, *([adamw._velocity_hats] if adamw.amsgrad else []))
        return [variable, *(one[index] for one in moments)]

    def trace_like(first: list[Any]) -> Callable[..., Any]:
        def update(values: Sequence[Any], gradient: Any, learning_rate: Any, iterations: Any) -> list[Any]:
            state = list(zip([*first, adamw.iterations], [*values, iterations], strict=True))
            with keras.StatelessScope(state_mapping=state) as scope:
                usual(gradient, first[0], learning_rate)
            return [scope.get_current_value(one) for one in first]

        repeated: Callable[..., Any] = jax.jit(update, inline=True)
        return repeated

    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        state = list_state(variable)
        key = (type(gradient), str(gradient.dtype), *((tuple(v.shape), str(v.dtype)) for v in state))
        if key not in traced:
            traced[key] = trace_like(state)
        rate = learning_rate.value if isinstance(learning_rate, keras.Variable) else learning_rate
        values = [one.value for one in state]
        updated = traced[key](values, gradient, rate, adamw.iterations.value)
        for one, value in zip(state, updated, strict=True):
            one.assign(value)

    with replacing((adamw, "update_step", update_step)):
        yield


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

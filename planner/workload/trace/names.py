"""Phase and Keras layer of an equation, from the names that JAX keeps of the scopes it was traced in."""

from __future__ import annotations

import re

from ..ops import Phase

__all__ = ["join_names", "layer_of", "phase_hint"]

# `transpose(jvp(block/dense))/add` is the backward pass of layer `block/dense/add`.
_WRAPPER = re.compile(r"(?:transpose|jvp|vmap|pmap)\(|\)")
_TRANSFORMS = {"checkpoint", "rematted_computation", "remat", "while", "body", "cond", "closed_call", ""}


def join_names(outer: str, inner: str) -> str:
    """Return the name stack of an equation inside a called jaxpr."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


def layer_of(stack: str) -> str:
    """Return the layer's path without JAX's transformations; empty outside every layer.

    Example:
        >>> layer_of("transpose(jvp(encoder))/attention/jvp()/softmax")
        'encoder/attention/softmax'
    """
    parts = _WRAPPER.sub("", stack).split("/")
    return "/".join(part for part in parts if part not in _TRANSFORMS and "(" not in part)


def phase_hint(stack: str) -> Phase | None:
    """Return the phase that a name stack proves; None when it says nothing (outside the gradient).

    Example:
        >>> phase_hint("jvp(dense)"), phase_hint("transpose(jvp(dense))"), phase_hint("adam")
        ('forward', 'backward', None)
    """
    if "transpose(" in stack:
        return "backward"
    return "forward" if "jvp(" in stack else None

"""Phase and Keras layer of an equation, from the names that JAX keeps of the scopes it was traced in."""

from __future__ import annotations

import math
import re

from ..ops import Phase

__all__ = [
    "CALL",
    "COMPOSED",
    "RECURRENT",
    "REPEAT",
    "call_of",
    "is_composed",
    "join_names",
    "layer_of",
    "phase_hint",
    "recurrent_layer_of",
    "repeats_of",
]

REPEAT = "gpuplan_repeat_"  # a scope `gpuplan_repeat_12` stands for twelve executions of what is inside
RECURRENT = "gpuplan_recurrent_"  # a scope `gpuplan_recurrent_lstm` is an LSTM that a library could run whole
CALL = "gpuplan_call_"  # a scope `gpuplan_call_7` is the seventh call of a function of `keras.ops`
COMPOSED = "gpuplan_composed"  # a scope of work that some frameworks have no kernel for

# `transpose(jvp(block/dense))/add` is the backward pass of layer `block/dense/add`.
_WRAPPER = re.compile(r"(?:transpose|jvp|vmap|pmap)\(|\)")
_REPEATS = re.compile(REPEAT + r"(\d+)")
_RECURRENT = re.compile(RECURRENT + r"(\w+)")
_CALL = re.compile(CALL + r"(\d+)")
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
    ours = (REPEAT, RECURRENT, CALL, COMPOSED)
    return "/".join(
        part for part in parts if part not in _TRANSFORMS and "(" not in part and not part.startswith(ours)
    )


def recurrent_layer_of(stack: str) -> str:
    """Return the kind of recurrent layer that a name stack lies in, if a library could run it; else empty.

    Example:
        >>> recurrent_layer_of("transpose(jvp(lstm/gpuplan_recurrent_lstm))"), recurrent_layer_of("dense")
        ('lstm', '')
    """
    found = _RECURRENT.findall(stack)
    return found[-1] if found else ""


def call_of(stack: str) -> int:
    """Return the number of the outermost call of `keras.ops` that a name stack lies in; 0 outside of all.

    Example:
        >>> call_of("jvp(attention)/gpuplan_call_7/gpuplan_call_8"), call_of("attention")
        (7, 0)
    """
    found = _CALL.search(stack)
    return int(found[1]) if found else 0


def is_composed(stack: str) -> bool:
    """Return whether a name stack lies in work that some frameworks have no kernel for.

    Example:
        >>> is_composed("transpose(jvp(dense/gpuplan_composed))"), is_composed("dense")
        (True, False)
    """
    return COMPOSED in stack


def repeats_of(stack: str) -> int:
    """Return how many equal executions a name stack stands for.

    Example:
        >>> repeats_of("adam/gpuplan_repeat_12"), repeats_of("adam")
        (12, 1)
    """
    return math.prod(int(count) for count in _REPEATS.findall(stack))


def phase_hint(stack: str) -> Phase | None:
    """Return the phase that a name stack proves; None when it says nothing (outside the gradient).

    Example:
        >>> phase_hint("jvp(dense)"), phase_hint("transpose(jvp(dense))"), phase_hint("adam")
        ('forward', 'backward', None)
    """
    if "transpose(" in stack:
        return "backward"
    return "forward" if "jvp(" in stack else None

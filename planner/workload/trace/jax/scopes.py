"""Phase and Keras layer of an equation, from the scope names recorded by JAX."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ...ops import Phase

REPEAT = "gpuplan_repeat_"  # a scope `gpuplan_repeat_12` stands for twelve executions of its contents
RECURRENT = "gpuplan_recurrent_"  # a scope `gpuplan_recurrent_lstm` is an LSTM that cuDNN supports
CALL = "gpuplan_call_"  # a scope `gpuplan_call_7` is the seventh call of a function of `keras.ops`
ATTENTION = "gpuplan_attention"  # a scope of one call of `keras.ops.dot_product_attention`
COMPOSED = "gpuplan_composed_"  # a scope `gpuplan_composed_torch` is work that PyTorch has no kernel for

# `transpose(jvp(block/dense))/add` is the backward pass of layer `block/dense/add`.
_WRAPPER = re.compile(r"(?:transpose|jvp|vmap|pmap)\(|\)")
_REPEATS = re.compile(REPEAT + r"(\d+)")
_RECURRENT = re.compile(RECURRENT + r"(\w+)")
_CALL = re.compile(CALL + r"(\d+)")
_COMPOSED = re.compile(COMPOSED + r"(\w+)")
_TRANSFORMS = {"checkpoint", "rematted_computation", "remat", "while", "body", "cond", "closed_call", ""}


class Scope(NamedTuple):
    """What the scopes around an equation say.

    Args:
        layer: Path of its layer without JAX's transformations; empty outside layers.
        phase: Phase; None outside the gradient.
        repeats: Equal executions that it stands for [-].
        call: Number of the outermost `keras.ops` call around it; 0 outside calls [-].
        composed: Framework that composes this call of primitives (`tensorflow`, `torch`); empty for none.
        attention: Whether it belongs to a call of `keras.ops.dot_product_attention`.
        recurrent: Kind of the recurrent layer around it if cuDNN supports it; else empty.
    """

    layer: str
    phase: Phase | None
    repeats: int
    call: int
    composed: str
    attention: bool
    recurrent: str


def parse_scope(stack: str) -> Scope:
    """Return what a name stack says.

    Example:
        >>> parse_scope("transpose(jvp(mlp/gelu/gpuplan_call_7/gpuplan_composed_torch))/gpuplan_call_8")[:5]
        ('mlp/gelu', 'backward', 1, 7, 'torch')
        >>> parse_scope("adam/gpuplan_repeat_12").repeats, parse_scope("lstm/gpuplan_recurrent_lstm").recurrent
        (12, 'lstm')
    """
    call, composed = _CALL.search(stack), _COMPOSED.search(stack)
    return Scope(
        layer=parse_layer(stack),
        phase=parse_phase(stack),
        repeats=math.prod(int(count) for count in _REPEATS.findall(stack)),
        call=int(call[1]) if call else 0,
        composed=composed[1] if composed else "",
        attention=ATTENTION in stack,
        recurrent=next(reversed(_RECURRENT.findall(stack)), ""),
    )


def join_names(outer: str, inner: str) -> str:
    """Return the name stack of an equation inside a called jaxpr."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


def parse_layer(stack: str) -> str:
    """Return the layer's path without JAX's transformations; empty outside layers.

    Example:
        >>> parse_layer("transpose(jvp(encoder))/attention/jvp()/softmax")
        'encoder/attention/softmax'
    """
    parts = _WRAPPER.sub("", stack).split("/")
    ours = (REPEAT, RECURRENT, CALL, COMPOSED, ATTENTION)
    return "/".join(
        part for part in parts if part not in _TRANSFORMS and "(" not in part and not part.startswith(ours)
    )


def parse_phase(stack: str) -> Phase | None:
    """Return the phase implied by a name stack; None outside the gradient.

    Example:
        >>> parse_phase("jvp(dense)"), parse_phase("transpose(jvp(dense))"), parse_phase("adam")
        ('forward', 'backward', None)
    """
    if "transpose(" in stack:
        return "backward"
    return "forward" if "jvp(" in stack else None

"""Phase and Keras layer of an equation, from the scope names recorded by JAX."""

from __future__ import annotations

import math
import re

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


def parse_recurrent_layer(stack: str) -> str:
    """Return the kind of recurrent layer around a name stack if cuDNN supports it; else empty.

    Example:
        >>> parse_recurrent_layer("transpose(jvp(lstm/gpuplan_recurrent_lstm))"), parse_recurrent_layer("dense")
        ('lstm', '')
    """
    found = _RECURRENT.findall(stack)
    return found[-1] if found else ""


def parse_call_number(stack: str) -> int:
    """Return the number of the outermost `keras.ops` call around a name stack; 0 outside calls.

    Example:
        >>> parse_call_number("jvp(attention)/gpuplan_call_7/gpuplan_call_8"), parse_call_number("attention")
        (7, 0)
    """
    found = _CALL.search(stack)
    return int(found[1]) if found else 0


def parse_composing_framework(stack: str) -> str:
    """Return the framework that composes the outermost such call around a name stack of primitives; else empty.

    Example:
        >>> parse_composing_framework("transpose(jvp(gelu/gpuplan_composed_tensorflow))")
        'tensorflow'
    """
    found = _COMPOSED.search(stack)
    return found[1] if found else ""


def is_attention(stack: str) -> bool:
    """Return whether a name stack belongs to a call of `keras.ops.dot_product_attention`.

    Example:
        >>> is_attention("jvp(mha/gpuplan_call_7/gpuplan_attention)"), is_attention("mha")
        (True, False)
    """
    return ATTENTION in stack


def parse_repeat_count(stack: str) -> int:
    """Return the number of equal executions represented by a name stack.

    Example:
        >>> parse_repeat_count("adam/gpuplan_repeat_12"), parse_repeat_count("adam")
        (12, 1)
    """
    return math.prod(int(count) for count in _REPEATS.findall(stack))


def parse_phase(stack: str) -> Phase | None:
    """Return the phase implied by a name stack; None outside the gradient.

    Example:
        >>> parse_phase("jvp(dense)"), parse_phase("transpose(jvp(dense))"), parse_phase("adam")
        ('forward', 'backward', None)
    """
    if "transpose(" in stack:
        return "backward"
    return "forward" if "jvp(" in stack else None

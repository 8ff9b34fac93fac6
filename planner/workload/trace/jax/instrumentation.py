"""Instrumentation of Keras during tracing, and the scopes by which an equation's phase and layer are found."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import keras
from keras.src import backend

from ...keras_layers import replacing
from ...model import AttentionCall
from ...ops import Phase
from ..rules import OPERATIONS

REPEAT = "gpuplan_repeat_"  # a scope `gpuplan_repeat_12` stands for twelve executions of its contents
RECURRENT = "gpuplan_recurrent_"  # a scope `gpuplan_recurrent_lstm` is an LSTM that cuDNN supports
CALL = "gpuplan_call_"  # a scope `gpuplan_call_7` is the seventh call of a function of `keras.ops`
ATTENTION = "gpuplan_attention"  # a scope of one call of `keras.ops.dot_product_attention`
COMPOSED = "gpuplan_composed_"  # a scope `gpuplan_composed_torch` is work that PyTorch has no kernel for

# `transpose(jvp(block/dense))/add` is the backward pass of layer `block/dense/add`.
_WRAPPER = re.compile(r"(?:transpose|jvp|vmap|pmap)\(|\)")
_MARK = re.compile(r"gpuplan_(repeat|recurrent|call|composed)_(\w+)")
_TRANSFORMS = {"checkpoint", "rematted_computation", "remat", "while", "body", "cond", "closed_call", ""}


class Scope(NamedTuple):
    """Scopes around an equation."""

    layer: str  # path without JAX's transformations; empty outside layers
    phase: Phase | None  # None outside the gradient
    repeats: int  # equal executions that it stands for [-]
    call: int  # of the outermost `keras.ops` call around it; 0 outside calls [-]
    composed: str  # framework that composes this call (`tensorflow`, `torch`)
    attention: bool  # whether it belongs to a call of `keras.ops.dot_product_attention`
    recurrent: str  # kind of the layer around it if cuDNN supports it


@functools.lru_cache(maxsize=4096)
def parse_scope(stack: str) -> Scope:
    """Return what a name stack says.

    Example:
        >>> parse_scope("transpose(jvp(mlp/gelu/gpuplan_call_7/gpuplan_composed_torch))/gpuplan_call_8")[:5]
        ('mlp/gelu', 'backward', 1, 7, 'torch')
        >>> parse_scope("adam/gpuplan_repeat_12")[1:3], parse_scope("jvp(lstm)/gpuplan_recurrent_lstm").recurrent
        ((None, 12), 'lstm')
        >>> parse_scope("transpose(jvp(encoder))/attention/jvp()/softmax").layer
        'encoder/attention/softmax'
    """
    marks: dict[str, list[str]] = {}
    for kind, value in _MARK.findall(stack):
        marks.setdefault(kind, []).append(value)
    phase: Phase | None = "forward" if "jvp(" in stack else None
    parts = (part for part in _WRAPPER.sub("", stack).split("/") if part not in _TRANSFORMS and "(" not in part)
    return Scope(
        layer="/".join(part for part in parts if not part.startswith("gpuplan_")),
        phase="backward" if "transpose(" in stack else phase,
        repeats=math.prod(map(int, marks.get("repeat", ()))),
        call=int(marks.get("call", "0")[0]),
        composed=marks.get("composed", [""])[0],
        attention=ATTENTION in stack,
        recurrent=marks.get("recurrent", [""])[-1],
    )


FLAGS_NOT_RECOMPUTED = (
    "`keras.RematScope` covers layers with a `training` flag (BatchNormalization, Dropout, ...), with which this "
    "version of Keras trains on PyTorch only; traced as intended, with their outputs recomputed"
)


@contextlib.contextmanager
def recompute_with_flags() -> Iterator[list[str]]:
    """Context in which `keras.RematScope` also recomputes layers that are called with flags; yields its notes.

    Keras on JAX passes every argument of a layer through `jax.checkpoint`, which turns `training=True` into an
    array of unknown value, so that BatchNormalization and Dropout fail. Here only arrays pass through it.
    """
    from keras.src.backend.jax import core

    notes: list[str] = []

    def remat(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def recomputed(*args: Any, **kwargs: Any) -> Any:
            leaves, tree = jax.tree.flatten((args, kwargs))
            arrays = {i: one for i, one in enumerate(leaves) if hasattr(one, "dtype") and hasattr(one, "shape")}
            if any(isinstance(leaf, bool) for leaf in leaves) and not notes:
                notes.append(FLAGS_NOT_RECOMPUTED)

            def call(arrays: dict[int, Any]) -> Any:
                filled = [arrays.get(place, leaf) for place, leaf in enumerate(leaves)]
                positional, named = jax.tree.unflatten(tree, filled)
                return function(*positional, **named)

            return jax.checkpoint(call)(arrays)

        return recomputed

    with replacing((core, "remat", remat)):
        yield notes


@contextlib.contextmanager
def name_recurrent_layers(model: Any) -> Iterator[None]:
    """Context in which LSTMs and GRUs supported by cuDNN, whose calls would hide the work, run as marked loops."""
    kinds = {keras.layers.LSTM: "lstm", keras.layers.GRU: "gru"}
    replacements: list[tuple[Any, str, Any]] = []
    for layer in model._flatten_layers():
        kind = kinds.get(type(layer))
        # Keras would use cuDNN for it on some backend (`cudnn_ok` in each). Masked sequences use the loop on
        # JAX and PyTorch, and here; TensorFlow supports some of them.
        if (
            kind is not None
            and layer.use_cudnn
            and layer.activation is keras.activations.tanh
            and layer.recurrent_activation is keras.activations.sigmoid
            and layer.use_bias
            and not layer.unroll
            and not layer.recurrent_dropout
            and getattr(layer, "reset_after", True)
        ):
            marked = functools.partial(_run_marked, layer.inner_loop, f"{RECURRENT}{kind}")
            replacements.append((layer, "inner_loop", marked))
        if kind == "lstm":
            replacements.append((layer, "use_cudnn", False))
    with replacing(*replacements):
        yield


def _run_marked(inner_loop: Callable[..., Any], name: str, *, mask: Any, **given: Any) -> Any:
    masked = any(part is not None for part in (mask if isinstance(mask, list | tuple) else [mask]))
    with contextlib.nullcontext() if masked else jax.named_scope(name):
        return inner_loop(mask=mask, **given)


_COMPOSED = ((name, framework) for framework, names in OPERATIONS["composed"].items() for name in names)
_MARKS = {name: f"/{COMPOSED}{framework}" for name, framework in _COMPOSED}
_MARKS["dot_product_attention"] = f"/{ATTENTION}"


@contextlib.contextmanager
def number_calls() -> Iterator[dict[int, AttentionCall]]:
    """Context in which functions of Keras's array and network backend, and normalizations, run in numbered scopes.

    Dot-product attention is traced without a fused kernel, since the prediction decides whether there is one; its
    calls are yielded by number, filled during tracing. Gradients keep the scope of their forward operation.
    """
    from keras.src.ops import nn

    numbers = itertools.count(1)
    attention: dict[int, AttentionCall] = {}
    attend = backend.nn.dot_product_attention
    signature = inspect.signature(attend)

    def number(function: Callable[..., Any], mark: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            call = next(numbers)
            if function is attend:
                given = signature.bind(*args, **kwargs)
                given.apply_defaults()
                query, key = given.arguments["query"], given.arguments["key"]
                attention[call] = AttentionCall(
                    dtype=str(query.dtype),
                    head_size=int(query.shape[-1]),
                    queries=int(query.shape[1]),
                    keys=int(key.shape[1]),
                    bias=given.arguments["bias"] is not None,
                    mask=given.arguments["mask"] is not None,
                    causal=bool(given.arguments["is_causal"]),
                    wanted=given.arguments["flash_attention"],
                )
                given.arguments["flash_attention"] = False  # True is an error on a machine without the kernel
                args, kwargs = given.args, given.kwargs
            with jax.named_scope(f"{CALL}{call}{mark}"):
                return function(*args, **kwargs)

        return run

    found = [
        (module, name, one)
        for module in (backend.nn, backend.numpy)
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_")
    ]
    found += [(nn, name, getattr(nn, name)) for name in _MARKS if name.startswith("_") and hasattr(nn, name)]
    with replacing(*((module, name, number(one, _MARKS.get(name, ""))) for module, name, one in found)):
        yield attention

"""Facts on a Keras model for its estimate, and changes of its layers: accumulation, recomputation, quantization.

Layers without values are quantized, and adapted by LoRA, by Keras's own methods run on shapes: the variables that
these create do not depend on the values.
"""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import jax
import keras
from keras.src import backend, quantizers
from keras.src.backend.common.remat import RematMode

from ...errors import UsageError
from ..keras_layers import iterate_layers, list_optimizers, replacing
from ..model import LayerSizes
from ..ops import Op, OpKind
from ..options import SpecTree, WorkloadOptions, iter_specs
from ..trace.jax.step import compute_variable_sizes


def find_tokens_per_sample(x: SpecTree, output: Any) -> int | None:
    """Return the length of the integer sequences that a language model turns into vectors; None for others [-]."""
    lengths = {spec.shape[0] for spec in iter_specs(x) if len(spec.shape) == 1 and "int" in spec.dtype}
    outputs = () if output is None else keras.tree.flatten(output)
    returned = {tensor.shape[1] for tensor in outputs if len(tensor.shape) > 2}
    return max(lengths & returned, default=None)


def find_precision(model: Any) -> tuple[str, str | None]:
    """Return the dtype policy of most weights, and the quantization in it (`int4/128_from_float32`), if any."""

    def get_policy_name(layer: Any) -> str:
        policy = layer.dtype_policy
        is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
        return str((policy[layer.path] if is_map else policy).name)

    weights: Counter[str] = Counter()
    for layer in model._flatten_layers(include_self=False):
        own = (*layer._trainable_variables, *layer._non_trainable_variables)
        weights[get_policy_name(layer)] += sum(prod(v.shape) for v in own)
    (name, count), *_ = weights.most_common(1) or [("", 0)]
    mode, _, policy = (name if count else get_policy_name(model)).rpartition("_from_")
    return policy, mode.partition("/")[0] or None


def note_model(model: Any, ops: Sequence[Op], options: WorkloadOptions) -> Iterator[str]:
    """Yield notes on a model: attention with dropout, nothing to train, a gradient that Keras does not pass.

    Keras 3.15 gives the logits of a look-up table in int8 only the gradient of the scale
    (keras/src/layers/core/reversible_embedding.py, `_int8_call`).
    """
    layers = list(model._flatten_layers())
    kinds = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
    attention = [layer for layer in layers if isinstance(layer, kinds)]
    dropped = sum(bool(getattr(layer, "_dropout", 0) or getattr(layer, "dropout", 0)) for layer in attention)
    if dropped:
        yield f"attention is not fused: {dropped} of {len(attention)} attention layers have dropout"
    if options.mode == "infer":
        return
    if not model.trainable_weights:
        yield "no variable is trainable: the step only computes the loss"
    multiplied = {op.layer.rpartition("/")[2] for op in ops if op.kind is OpKind.DOT and op.dtype == "int8"}
    for layer in layers:
        if type(layer).__name__ == "ReversibleEmbedding" and layer.name in multiplied:
            yield (
                f"Keras passes hardly a gradient through the int8 logits of `{layer.name}`: the layers before it "
                "do not learn; int4 passes one"
            )


def find_layer_sizes(model: Any) -> LayerSizes:
    """Return the sizes of the layers that hold parameters; a shared variable counts for its first layer."""
    seen: set[int] = set()
    parameters, trainable = [], []
    for variables in _iter_variables(model):
        new = [one for one in variables if id(one) not in seen]
        seen.update(map(id, new))
        if new:
            parameters.append(sum(compute_variable_sizes(new)))
            trainable.append(sum(compute_variable_sizes([one for one in new if one.trainable])))
    return LayerSizes(parameter_bytes=tuple(parameters), trainable_bytes=tuple(trainable))


def _iter_variables(model: Any) -> Iterator[list[Any]]:
    """Yield the trainable and frozen parameters of each layer, those of the model itself first.

    Keras keeps frozen ones in `_trainable_variables`; statistics, seeds and quantized weights are elsewhere.
    """
    yield list(model._trainable_variables)
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _iter_variables(layer)
            continue
        own = []
        for part in layer._flatten_layers():
            own += part._trainable_variables
            own += part._non_trainable_variables if part.quantization_mode in ("int8", "int4") else []
        yield own


NAME = "gradient_accumulation_steps"


@contextmanager
def updating_in_every_step(model: Any) -> Iterator[int]:
    """Let the optimizer update in every step, not in a branch; yield the steps that it takes for an update [-]."""
    outer = list_optimizers(model)
    inner = (getattr(one, "inner_optimizer", None) for one in outer)  # of a `LossScaleOptimizer`
    accumulating = [one for one in (*outer, *inner) if getattr(one, NAME, None)]
    steps = getattr(accumulating[0], NAME) if accumulating else 1
    with replacing(*((one, NAME, None) for one in accumulating)):
        yield steps


RECOMPUTED = (
    "every layer recomputes its activations in the backward pass (`--remat`): a script does so itself where its "
    'layers are made under `keras.RematScope(mode="full")`'
)


def recompute_layers(model: Any, options: WorkloadOptions) -> tuple[str, ...]:
    """Put layers without a scope of their own under `keras.RematScope(mode="full")` if asked; return a note."""
    if not options.remat:
        return ()
    for layer in iterate_layers(model):
        if layer._remat_mode is None:
            object.__setattr__(layer, "_remat_mode", RematMode("full", 0, []))
    return (RECOMPUTED,)


@contextmanager
def recomputing_layers(model: Any, options: WorkloadOptions) -> Iterator[tuple[str, ...]]:
    """Context of `recompute_layers`, after which the layers are as before; yields its note."""
    layers = iterate_layers(model) if options.remat else ()
    with replacing(*((layer, "_remat_mode", layer._remat_mode) for layer in layers)):
        yield recompute_layers(model, options)


CALIBRATED = ("gptq", "awq")


@contextmanager
def change_layers_on_shapes() -> Iterator[None]:
    """Let layers that are created in this context be quantized and adapted without values; JAX backend only."""
    pending, seen = keras.layers.Layer.__subclasses__(), {keras.Model}  # whose methods call those of its layers
    wrapped: list[tuple[type, str, Callable[..., None]]] = []
    while pending:
        owner = pending.pop()
        if owner not in seen:
            seen.add(owner)
            pending += owner.__subclasses__()
            own = vars(owner)
            wrapped += [(owner, name, _wrap(own[name], run)) for name, run in _INSTEAD.items() if name in own]
    with replacing(*wrapped):
        yield


def _wrap(method: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        run(method, *args, **kwargs)

    return wrapped


def _quantize(method: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Run `quantize()` while JAX traces: weights are drawn and rounded as shapes, and not assigned."""

    def pack(unpacked: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, tuple[int, ...], int]:
        """Return zeros in the shape of Keras's `pack_int4`, two numbers a byte, with it and the old length."""
        shape = list(unpacked.shape)
        shape[axis] = (shape[axis] + 1) // 2
        return jax.numpy.zeros(shape, dtype), tuple(shape), unpacked.shape[axis]

    def run() -> None:
        with keras.StatelessScope():
            method(*args, **kwargs)

    try:
        with replacing(
            (quantizers.quantizers, "np", jax.numpy),  # Keras computes with NumPy to save memory of a GPU
            (backend, "convert_to_numpy", backend.convert_to_tensor),
            (quantizers, "pack_int4", pack),
            (gc, "collect", lambda *generation: 0),  # Keras looks for garbage at each weight that it deletes
        ):
            jax.eval_shape(run)
    except jax.errors.TracerArrayConversionError:  # a quantizer of the user's own needs arrays of NumPy
        method(*args, **kwargs)


def _enable_lora(method: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Run `enable_lora()` with int4 weights unpacked as symbolic tensors, like Keras's `unpack_int4`."""

    def unpack(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
        shape = list(packed.shape)
        shape[axis] = orig_len
        return keras.KerasTensor(shape, dtype)

    with replacing((quantizers, "unpack_int4", unpack)):
        method(*args, **kwargs)


def _build_quantized(
    method: Callable[..., None], layer: Any, shape: Any, mode: str, *args: Any, **kwargs: Any
) -> None:
    """Run `quantized_build()`, and refuse weights which Keras rounds by the activations of given data."""
    if mode in CALIBRATED:
        raise UsageError(
            f"{mode.upper()} is not planned: Keras calibrates it on data, with the values of the weights",
            hint='plan `quantize("int4")` or `quantize("int8")`, by the bits of its weights',
        )
    method(layer, shape, mode, *args, **kwargs)


_INSTEAD = {"quantize": _quantize, "enable_lora": _enable_lora, "quantized_build": _build_quantized}

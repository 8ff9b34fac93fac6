"""Facts on a Keras model for its estimate: layers, precision, quantization, accumulation, recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import keras

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
    """Return the dtype policy used by most weights, and how it quantizes them, if it does.

    Keras names policies of quantized layers `int8_from_mixed_bfloat16`, `int4/128_from_float32`.
    """

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

    With dropout, Keras 3.15 computes and stores the scores of attention. It gives the logits of a look-up table in
    int8 no gradient of their own, unlike other layers in int8, only that of the scale
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

    Keras lists a variable under `_trainable_variables` if it was created to be trained, and keeps it there when it
    is frozen; statistics and seeds are elsewhere, and so are integers and scales of quantized layers.
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
    """Let the optimizer of a model update in every step, and yield the steps that it takes for an update [-].

    Keras updates in one branch of a condition that is known on the device alone; without it, the update can be
    traced. The sums of gradients stay among the optimizer's variables.
    """
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
    """Put every layer of a model under `keras.RematScope(mode="full")` if asked for; return a note if so.

    Layers are as Keras recomputes them: a block of a Transformer keeps its input alone. Models inside a model are
    not layers; theirs are taken. A layer under a scope of its own keeps it.
    """
    if not options.remat:
        return ()
    from keras.src.backend.common.remat import RematMode

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

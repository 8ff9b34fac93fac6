"""Facts on a model for its estimate: precision, quantization, sequence length, and notes on its training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from ..array_spec import SpecTree, iter_specs
from ..ops import Op, OpKind
from ..options import WorkloadOptions


def find_tokens_per_sample(x: SpecTree, output: Any) -> int | None:
    """Return the length of the sequences of a language model; None for other models [-].

    A language model takes integers of one length and returns a vector for each of them.
    """
    import keras

    lengths = {spec.shape[0] for spec in iter_specs(x) if len(spec.shape) == 1 and "int" in spec.dtype}
    returned = {tensor.shape[1] for tensor in keras.tree.flatten(output) if len(tensor.shape) > 2}
    return max(lengths & returned, default=None)


def find_precision(model: Any) -> tuple[str, str | None]:
    """Return the dtype policy used by most weights, and how it quantizes them, if it does.

    Keras names policies of quantized layers `int8_from_mixed_bfloat16`, `int4/128_from_float32`.
    """
    weights: Counter[str] = Counter()
    for layer in model._flatten_layers(include_self=False):
        own = (*layer._trainable_variables, *layer._non_trainable_variables)
        weights[_get_policy_name(layer)] += sum(prod(v.shape) for v in own)
    (name, count), *_ = weights.most_common(1) or [("", 0)]
    mode, _, policy = (name if count else _get_policy_name(model)).rpartition("_from_")
    return policy, mode.partition("/")[0] or None


def _get_policy_name(layer: Any) -> str:
    """Return the name of a layer's own policy, also where it has a map of policies by path."""
    import keras

    policy = layer.dtype_policy
    is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
    return str((policy[layer.path] if is_map else policy).name)


def note_nothing_trained(model: Any, options: WorkloadOptions) -> tuple[str, ...]:
    """Return a note on a training step that changes no variable; empty for others."""
    if options.mode == "infer" or model.trainable_weights:
        return ()
    return ("no variable is trainable: the step only computes the loss",)


def note_lost_gradient(model: Any, ops: Sequence[Op], options: WorkloadOptions) -> tuple[str, ...]:
    """Return a note on look-up tables in int8 that also compute logits; empty without any in training.

    Keras 3.15 rounds their inputs and gives the product no gradient of its own, unlike other layers in int8
    (keras/src/layers/core/reversible_embedding.py, `_int8_call`): only that of the scale is left.
    """
    if options.mode == "infer":
        return ()
    multiplied = {op.layer.rpartition("/")[2] for op in ops if op.kind is OpKind.DOT and op.dtype == "int8"}
    return tuple(
        f"Keras passes hardly a gradient through the int8 logits of `{layer.name}`: the layers before it do not "
        "learn; int4 passes one"
        for layer in model._flatten_layers()
        if type(layer).__name__ == "ReversibleEmbedding" and layer.name in multiplied
    )

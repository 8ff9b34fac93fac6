"""Lowering of a Keras model's real step for XLA, for a platform that need not be present."""

from __future__ import annotations

from typing import Any, Literal

from ...options import SpecTree, map_specs
from .step import build_abstract_array, build_abstract_variables


def export_step(
    model: Any, data: SpecTree, *, batch_size: int, mode: Literal["train", "infer"], platform: str
) -> bytes:
    """Lower one step of a built model to a serialized StableHLO module (`jax.export`).

    Nothing is compiled, computed or allocated: variables may be abstract. The first argument holds the state
    that the step updates (variables, optimizer, metrics), the others its inputs.

    Args:
        model: A `keras.Model` on the JAX backend, its optimizer and metrics built.
        data: As for `trace_step`.
        batch_size: Samples of the batch [-].
        mode: The training step (loss, gradients, metrics, optimizer), or the forward pass alone.
        platform: `tpu` or `cuda`, as JAX names them.
    """
    import jax
    import keras
    from jax import export

    batch = map_specs(lambda spec: build_abstract_array(spec, batch_size), data)
    state: tuple[Any, ...] = (model.trainable_variables, model.non_trainable_variables)
    with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
        if mode == "train":
            state += (model.optimizer.variables, model.metrics_variables)
            step = jax.jit(model.train_step, donate_argnums=0)
        else:
            step = jax.jit(_build_forward(model))
        arguments = tuple(map(build_abstract_variables, state))
        exported = export.export(step, platforms=[platform])(arguments, batch)
    return bytes(exported.serialize())


def _build_forward(model: Any) -> Any:
    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    return call

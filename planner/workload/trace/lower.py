"""Lower the real step of a Keras model for XLA, for a platform that need not be there."""

from __future__ import annotations

from typing import Any, Literal

from ..spec import SpecTree, map_specs
from .step import abstract_array, abstract_variables_of

__all__ = ["lower_step"]


def lower_step(
    model: Any, *, specs: tuple[SpecTree, SpecTree, SpecTree], batch_size: int, mode: Literal["train", "infer"],
    platform: str,
) -> bytes:  # fmt: skip
    """Return one step of a built model as a serialized StableHLO module (`jax.export`).

    Nothing is compiled, computed or allocated: variables may be abstract. The first argument holds what the step
    replaces (variables, optimizer, metrics), the others what it is fed.

    Args:
        model: A `keras.Model` on the JAX backend, its optimizer and metrics built.
        specs: One sample of x, y and sample weights, nested as the data is; None where not given.
        batch_size: Samples of the batch [-].
        mode: The training step (loss, gradients, metrics, optimizer), or the forward pass alone.
        platform: `tpu` or `cuda`, as JAX names them.
    """
    import jax
    import keras
    from jax import export

    x, y, weight = (map_specs(lambda spec: abstract_array(spec, batch_size), tree) for tree in specs)
    with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
        if mode == "train":
            step: Any = model.train_step
            arguments = (_state(model), (x, y) if weight is None else (x, y, weight))
        else:
            step = _forward(model)
            arguments = (_weights(model), x)
        jitted = jax.jit(step, donate_argnums=0 if mode == "train" else ())
        exported = export.export(jitted, platforms=[platform])(*arguments)
    return bytes(exported.serialize())


def _state(model: Any) -> tuple[Any, ...]:
    return (
        *_weights(model),
        *map(abstract_variables_of, (model.optimizer.variables, model.metrics_variables)),
    )


def _weights(model: Any) -> tuple[Any, Any]:
    trainable, others = map(abstract_variables_of, (model.trainable_variables, model.non_trainable_variables))
    return trainable, others


def _forward(model: Any) -> Any:
    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    return call

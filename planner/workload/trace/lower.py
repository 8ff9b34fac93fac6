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

    batch = tuple(map_specs(lambda spec: _placed_batch(spec, batch_size), tree) for tree in specs)
    x, y, weight = batch
    with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
        if mode == "train":
            step: Any = model.train_step
            arguments = (_state(model), (x, y) if weight is None else (x, y, weight))
        else:
            step = _forward(model)
            arguments = (_weights(model), x)
        results = _places(arguments[0]) if mode == "train" else None
        jitted = jax.jit(step, donate_argnums=0 if mode == "train" else (), **_kept_in_place(results))
        exported = export.export(jitted, platforms=[platform])(*arguments)
    return bytes(exported.serialize())


def _kept_in_place(state: Any) -> dict[str, Any]:
    """Return what keeps the new state where the old one lies, as `fit()` does; nothing on one device."""
    import jax

    return {} if state is None or not jax.tree.leaves(state) else {"out_shardings": (None, state)}


def _places(arrays: Any) -> Any:
    import jax

    return jax.tree.map(lambda array: array.sharding, arrays)


def _placed_batch(spec: Any, batch_size: int) -> Any:
    """Return a batch's shape and type, laid out over devices as the model's distribution has it."""
    import jax
    import keras

    array, distribution = abstract_array(spec, batch_size), keras.distribution.distribution()
    if distribution is None:
        return array
    layout = distribution.get_data_layout(array.shape)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=layout.backend_layout)


def _placed_variables(variables: Any) -> list[Any]:
    """Return shapes and types of variables, likewise."""
    import jax
    import keras

    distribution = keras.distribution.distribution()
    if distribution is None:
        return abstract_variables_of(variables)
    layouts = (distribution.get_variable_layout(variable) for variable in variables)
    return [
        jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=getattr(layout, "backend_layout", layout)
        )
        for variable, layout in zip(variables, layouts, strict=True)
    ]


def _state(model: Any) -> tuple[Any, ...]:
    return (
        *_weights(model),
        *map(_placed_variables, (model.optimizer.variables, model.metrics_variables)),
    )


def _weights(model: Any) -> tuple[Any, Any]:
    trainable, others = map(_placed_variables, (model.trainable_variables, model.non_trainable_variables))
    return trainable, others


def _forward(model: Any) -> Any:
    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    return call

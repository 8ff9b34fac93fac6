"""Lowering of a Keras model's real step for XLA, for a platform that need not be present."""

from __future__ import annotations

from typing import Any, Literal

from ...array_spec import SpecTree, map_specs
from .step import build_abstract_array, build_abstract_variables


def lower_step(
    model: Any,
    *,
    specs: tuple[SpecTree, SpecTree, SpecTree],
    batch_size: int,
    mode: Literal["train", "infer"],
    platform: str,
) -> bytes:
    """Lower one step of a built model to a serialized StableHLO module (`jax.export`).

    Nothing is compiled, computed or allocated: variables may be abstract. The first argument holds the state
    that the step updates (variables, optimizer, metrics), the others its inputs.

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

    batch = tuple(map_specs(lambda spec: _build_placed_batch(spec, batch_size), tree) for tree in specs)
    x, y, weight = batch
    with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
        if mode == "train":
            step: Any = model.train_step
            arguments = (_build_state(model), (x, y) if weight is None else (x, y, weight))
        else:
            step = _build_forward(model)
            arguments = (_build_weights(model), x)
        results = _get_shardings(arguments[0]) if mode == "train" else None
        jitted = jax.jit(
            step, donate_argnums=0 if mode == "train" else (), **_build_output_shardings(results)
        )
        exported = export.export(jitted, platforms=[platform])(*arguments)
    return bytes(exported.serialize())


def _build_output_shardings(state: Any) -> dict[str, Any]:
    """Return options that keep the new state at the placement of the old one, as in `fit()`; empty on one
    device.
    """
    import jax

    return {} if state is None or not jax.tree.leaves(state) else {"out_shardings": (None, state)}


def _get_shardings(arrays: Any) -> Any:
    import jax

    return jax.tree.map(lambda array: array.sharding, arrays)


def _build_placed_batch(spec: Any, batch_size: int) -> Any:
    """Return a batch's shape and type, with the placement of the model's distribution."""
    import jax
    import keras

    array, distribution = build_abstract_array(spec, batch_size), keras.distribution.distribution()
    if distribution is None:
        return array
    layout = distribution.get_data_layout(array.shape)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=layout.backend_layout)


def _build_placed_variables(variables: Any) -> list[Any]:
    """Return the shapes, types and placements of variables."""
    import jax
    import keras

    distribution = keras.distribution.distribution()
    if distribution is None:
        return build_abstract_variables(variables)
    layouts = (distribution.get_variable_layout(variable) for variable in variables)
    return [
        jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=getattr(layout, "backend_layout", layout)
        )
        for variable, layout in zip(variables, layouts, strict=True)
    ]


def _build_state(model: Any) -> tuple[Any, ...]:
    return (
        *_build_weights(model),
        *map(_build_placed_variables, (model.optimizer.variables, model.metrics_variables)),
    )


def _build_weights(model: Any) -> tuple[Any, Any]:
    trainable, others = map(
        _build_placed_variables, (model.trainable_variables, model.non_trainable_variables)
    )
    return trainable, others


def _build_forward(model: Any) -> Any:
    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    return call

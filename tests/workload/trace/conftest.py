"""Small abstract models, traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpuplan.workload.ops import Op, OpKind
from gpuplan.workload.options import ArraySpec
from gpuplan.workload.trace.jax.step import TracedStep, trace_step

CONTRACTIONS = (OpKind.CONV, OpKind.DEPTHWISE, OpKind.DOT)


class Traced:
    """A model built without values, and its traced step."""

    def __init__(self, model: Any, step: TracedStep, x_spec: ArraySpec, y_spec: ArraySpec, batch: int) -> None:
        self.model = model
        self.step = step
        self.x_spec = x_spec
        self.y_spec = y_spec
        self.batch_size = batch

    def rows(self, **wanted: Any) -> list[Op]:
        """Return the rows whose fields have these values."""
        return [op for op in self.step.ops if all(getattr(op, name) == v for name, v in wanted.items())]

    def contractions(self, layer: str) -> dict[str, Op]:
        """Return a layer's contractions, one a variant."""
        rows = [op for op in self.step.ops if op.layer.split("/")[-1] == layer and op.kind in CONTRACTIONS]
        found = {op.variant: op for op in rows}
        assert len(found) == len(rows), f"several of one variant: {[op.variant for op in rows]}"
        return found

    def flops(self, **wanted: Any) -> float:
        """Return the FLOPs of all rows with these fields in one step."""
        return sum(op.flops * op.count for op in self.rows(**wanted))

    def state(self) -> tuple[list[Any], ...]:
        """Return the shapes of the training step's state."""
        import jax

        groups = (
            self.model.trainable_variables,
            self.model.non_trainable_variables,
            self.model.optimizer.variables,
            self.model.metrics_variables,
        )
        return tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in groups)

    def data(self) -> tuple[Any, Any]:
        """Return the shapes of one batch."""
        import jax

        return tuple(
            jax.ShapeDtypeStruct((self.batch_size, *spec.shape), spec.dtype) for spec in (self.x_spec, self.y_spec)
        )


@pytest.fixture
def trace() -> Callable[..., Traced]:
    """Return a function that builds a model abstractly from a function and traces one step."""

    def traced(
        build: Callable[[], Any],
        *,
        batch_size: int = 8,
        loss: Any = "mse",
        optimizer: Any = "sgd",
        x_dtype: str = "float32",
        y_shape: tuple[int, ...] | None = None,
        y_dtype: str = "float32",
        mode: str = "train",
    ) -> Traced:
        import jax
        import keras

        with keras.StatelessScope(initialize_variables=False):
            model = build()
        model.compile(optimizer=optimizer, loss=loss)
        x_spec = ArraySpec(tuple(model.inputs[0].shape[1:]), x_dtype)
        y_spec = ArraySpec(tuple(model.outputs[0].shape[1:]) if y_shape is None else y_shape, y_dtype)
        batch = tuple(jax.ShapeDtypeStruct((batch_size, *spec.shape), spec.dtype) for spec in (x_spec, y_spec))
        with keras.StatelessScope(initialize_variables=False):
            model.optimizer.build(model.trainable_variables)
            model._symbolic_build(data_batch=batch)
        data = (x_spec, y_spec) if mode == "train" else x_spec
        step = trace_step(model, data, batch_size=batch_size, mode=mode)
        return Traced(model, step, x_spec, y_spec, batch_size)

    return traced

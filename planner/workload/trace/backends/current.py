"""Tracing on the backend of this process: JAX's tracer if possible, else the backend's own."""

from __future__ import annotations

from typing import Any, Literal

from ...array_spec import SpecTree, iter_specs
from ...ops import Op
from ..division.placement import Placement
from ..graph.liveness import MemoryPeaks
from ..jax.step import KnownSteps, TracedStep, compute_array_bytes, compute_memory, trace_step

NOTE = "activation memory is an upper bound: all outputs of the forward pass are assumed to be kept"


def trace_on_backend(
    model: Any,
    *,
    x_spec: SpecTree,
    y_spec: SpecTree,
    sample_weight_spec: SpecTree = None,
    batch_size: int,
    mode: Literal["train", "infer"] = "train",
    placement: Placement | None = None,
    known: KnownSteps | None = None,
) -> TracedStep:
    """Trace one step on Keras's current backend; see `trace_step`.

    On TensorFlow and PyTorch nothing is fused or divided, and the model is unusable afterwards.
    """
    import keras

    backend = keras.backend.backend()
    specs = (x_spec, y_spec, sample_weight_spec)
    given = {"batch_size": batch_size, "mode": mode} | dict(
        zip(("x_spec", "y_spec", "sample_weight_spec"), specs, strict=True)
    )
    if backend == "jax":
        return trace_step(model, placement=placement, known=known, **given)
    train = mode == "train"
    fed = iter_specs(specs if train else x_spec)
    inputs = sum(compute_array_bytes((batch_size, *spec.shape), spec.dtype) for spec in fed)
    ops = _trace_ops(backend, model, given)
    bound = _compute_activation_bytes(ops, train=train)
    peaks = MemoryPeaks(fused=bound, compiled=bound, eager=bound, recomputed=bound, tpu=bound)
    memory = compute_memory(model, train=train, input_bytes=inputs, peaks=peaks)
    return TracedStep(ops, memory, (), (NOTE,))


def _trace_ops(backend: str, model: Any, given: dict[str, Any]) -> tuple[Op, ...]:
    if backend == "torch":
        from .torch_step import trace_torch_step

        return trace_torch_step(model, **given)
    from .tensorflow_step import trace_tensorflow_step

    return trace_tensorflow_step(model, **given)


def _compute_activation_bytes(ops: tuple[Op, ...], *, train: bool) -> int:
    """Return the bytes written by the forward pass or, for inference, used by the largest operation [bytes]."""
    if train:
        return int(sum(op.bytes_written * op.count for op in ops if op.phase == "forward"))
    return int(max((op.bytes_read + op.bytes_written for op in ops), default=0.0))

"""Tracing on the backend of this process: JAX's tracer if possible, else the backend's own."""

from __future__ import annotations

from typing import Any, Literal

from ...ops import Op
from ...options import SpecTree, iter_specs
from ..division.spec import Placement
from ..graph.liveness import PEAKS
from ..jax.step import KnownSteps, TracedStep, compute_array_bytes, compute_memory, trace_step

NOTE = "activation memory is an upper bound: all outputs of the forward pass are assumed to be kept"


def trace_on_backend(
    model: Any,
    specs: tuple[SpecTree, SpecTree, SpecTree],
    *,
    batch_size: int,
    mode: Literal["train", "infer"],
    placement: Placement | None,
    known: KnownSteps,
) -> TracedStep:
    """Trace one step on Keras's current backend; see `trace_step`, whose specs are x, y and sample weights.

    On TensorFlow and PyTorch nothing is fused or divided, and the model is unusable afterwards.
    """
    import keras

    x, y, sample_weight = specs
    backend = keras.backend.backend()
    if backend == "jax":
        return trace_step(
            model,
            x_spec=x,
            y_spec=y,
            sample_weight_spec=sample_weight,
            batch_size=batch_size,
            mode=mode,
            placement=placement,
            known=known,
        )
    if backend == "torch":
        from .torch_step import trace_torch_step as trace_ops
    else:
        from .tensorflow_step import trace_tensorflow_step as trace_ops
    train = mode == "train"
    fed = iter_specs(specs if train else x)
    inputs = sum(compute_array_bytes((batch_size, *spec.shape), spec.dtype) for spec in fed)
    ops = trace_ops(model, specs, batch_size=batch_size, mode=mode)
    peaks = dict.fromkeys(PEAKS, _compute_activation_bytes(ops, train=train))
    memory = compute_memory(model, train=train, input_bytes=inputs, peaks=peaks)
    return TracedStep(ops, memory, (), (NOTE,))


def _compute_activation_bytes(ops: tuple[Op, ...], *, train: bool) -> int:
    """Return the bytes written by the forward pass or, for inference, used by the largest operation [bytes]."""
    if train:
        return int(sum(op.bytes_written * op.count for op in ops if op.phase == "forward"))
    return int(max((op.bytes_read + op.bytes_written for op in ops), default=0.0))

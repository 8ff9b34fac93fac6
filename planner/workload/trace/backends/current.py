"""Tracing on the backend of this process: JAX's tracer if possible, else the backend's own."""

from __future__ import annotations

from typing import Any

import keras

from ...ops import Mode, Op
from ...options import SpecTree
from ..division.spec import Placement
from ..graph.liveness import PEAKS
from ..jax.step import KnownSteps, TracedStep, compute_batch_bytes, compute_memory, trace_step

NOTE = "activation memory is an upper bound: all outputs of the forward pass are assumed to be kept"


def trace_on_backend(
    model: Any, data: SpecTree, *, batch_size: int, mode: Mode, placement: Placement | None, known: KnownSteps
) -> TracedStep:
    """Trace one step on Keras's current backend; see `trace_step`.

    On TensorFlow and PyTorch nothing is fused or divided, and the model is unusable afterwards.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return trace_step(model, data, batch_size=batch_size, mode=mode, placement=placement, known=known)
    if backend == "torch":
        from .torch_step import trace_torch_step as trace_ops
    else:
        from .tensorflow_step import trace_tensorflow_step as trace_ops
    ops = trace_ops(model, data, batch_size=batch_size, mode=mode)
    return build_unfused(model, ops, train=mode == "train", input_bytes=compute_batch_bytes(data, batch_size))


def build_unfused(model: Any, ops: tuple[Op, ...], *, train: bool, input_bytes: int) -> TracedStep:
    """Return a step as its operations, one kernel each; `input_bytes` of a batch."""
    if train:
        held = sum(op.bytes_written * op.count for op in ops if op.phase == "forward")
    else:
        held = max((op.bytes_read + op.bytes_written for op in ops), default=0.0)
    peaks = dict.fromkeys(PEAKS, int(held))
    return TracedStep(ops, compute_memory(model, train=train, input_bytes=input_bytes, peaks=peaks), (), (NOTE,))

"""Tracing of a Keras model's real step to a table of operations and its memory."""

from __future__ import annotations

from .backends.current import trace_on_backend
from .jax.step import TracedStep, trace_step

__all__ = ["TracedStep", "trace_on_backend", "trace_step"]

"""The real step of a Keras model, traced with JAX and counted: a table of ops, and its memory."""

from __future__ import annotations

from .step import TracedStep, trace_step

__all__ = ["TracedStep", "trace_step"]

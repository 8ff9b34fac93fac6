"""The real step of a Keras model, traced and counted: a table of ops, and its memory."""

from __future__ import annotations

from .elsewhere import trace_on_backend
from .step import TracedStep, trace_step

__all__ = ["TracedStep", "trace_on_backend", "trace_step"]

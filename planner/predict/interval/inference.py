"""Packaged intervals of inference calls."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from ..step_time import Basis

__all__ = ["FILE", "LogBounds", "inference_log_bounds", "load_inference_intervals"]

FILE = "inference.json"

LogBounds = tuple[float, float]


@cache
def load_inference_intervals() -> dict[str, LogBounds]:
    """Return the packaged ends, by stack."""
    text = (resources.files("gpuplan.profiles") / FILE).read_text(encoding="utf-8")
    return {stack: (low, high) for stack, (low, high) in json.loads(text)["intervals"].items()}


def inference_log_bounds(training: LogBounds, basis: Basis, stack: str) -> LogBounds:
    """Return by how much the time of an inference call may be off.

    Args:
        training: The same of a training step.
        basis: How the time is known; one from a datasheet may be off by what both kinds were off.
        stack: What runs it.
    """
    low, high = load_inference_intervals().get(stack, training)
    if basis == "modelled":
        return low, high
    return min(low, training[0]), max(high, training[1])

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
    """Return the packaged log bounds by class of stack."""
    text = (resources.files("gpuplan.profiles") / FILE).read_text(encoding="utf-8")
    return {stack: (low, high) for stack, (low, high) in json.loads(text)["intervals"].items()}


def inference_log_bounds(training: LogBounds, basis: Basis, stack: str) -> LogBounds:
    """Return the log bounds of the time of an inference call.

    Args:
        training: Log bounds of a training step.
        basis: Basis of the prediction; unless it is `modelled`, the union of both intervals is returned.
        stack: Class of stack.
    """
    low, high = load_inference_intervals().get(stack, training)
    if basis == "modelled":
        return low, high
    return min(low, training[0]), max(high, training[1])

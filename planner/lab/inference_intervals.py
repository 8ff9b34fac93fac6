"""Errors of predicted inference calls, each publisher left out in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..predict.interval.inference import LogBounds
from ..predict.measurements import STACKS
from .cross_validation import CrossValidation

__all__ = ["compute_inference_bounds", "inference_to_json"]

FORMAT = "gpuplan.inference/1"


def compute_inference_bounds(sources: CrossValidation) -> dict[str, LogBounds]:
    """Return the 10th and 90th percentile of log(measured / predicted) of inference calls, by stack.

    Args:
        sources: Predictions by fits without each publisher, of whatever mode.
    """
    calls = sources.where(lambda m: m.mode == "infer")
    return calls.intervals(kinds=STACKS) if calls.samples else {}


def inference_to_json(ends: Mapping[str, LogBounds]) -> dict[str, Any]:
    """Return the ends as plain JSON types."""
    return {"schema": FORMAT, "intervals": {stack: list(pair) for stack, pair in ends.items()}}

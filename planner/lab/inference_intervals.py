"""Errors of predicted inference calls, each publisher left out in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..predict.interval.inference import Ends
from ..predict.measurements import STACKS
from .cross_validation import HeldOut

__all__ = ["inference_ends", "inference_to_json"]

FORMAT = "gpuplan.inference/1"


def inference_ends(sources: HeldOut) -> dict[str, Ends]:
    """Return the 10th and 90th percentile of log(measured / predicted) of inference calls, by stack.

    Args:
        sources: Predictions by fits without each publisher, of whatever mode.
    """
    calls = sources.where(lambda m: m.mode == "infer")
    return calls.intervals(kinds=STACKS) if calls.examples else {}


def inference_to_json(ends: Mapping[str, Ends]) -> dict[str, Any]:
    """Return the ends as plain JSON types."""
    return {"schema": FORMAT, "intervals": {stack: list(pair) for stack, pair in ends.items()}}

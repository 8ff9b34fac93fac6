"""How far off predictions of inference calls are, each publisher left out in its turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from .corpus import STACKS
from .heldout import HeldOut
from .steptime import Basis

__all__ = ["FILE", "Ends", "inference_ends", "inference_ends_of", "inference_to_json", "load_inference"]

FORMAT = "gpuplan.inference/1"
FILE = "inference.json"

Ends = tuple[float, float]


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


@cache
def load_inference() -> dict[str, Ends]:
    """Return the packaged ends, by stack."""
    text = (resources.files("gpuplan.profiles") / FILE).read_text(encoding="utf-8")
    return {stack: (low, high) for stack, (low, high) in json.loads(text)["intervals"].items()}


def inference_ends_of(training: Ends, basis: Basis, stack: str) -> Ends:
    """Return by how much the time of an inference call may be off.

    Args:
        training: The same of a training step.
        basis: How the time is known; one from a datasheet may be off by what both kinds were off.
        stack: What runs it.
    """
    low, high = load_inference().get(stack, training)
    if basis == "modelled":
        return low, high
    return min(low, training[0]), max(high, training[1])

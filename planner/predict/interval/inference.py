"""Packaged intervals of inference calls."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from ..step_time import Basis

__all__ = ["FILE", "Ends", "inference_ends_of", "load_inference"]

FILE = "inference.json"

Ends = tuple[float, float]


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

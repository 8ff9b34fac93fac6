"""How far off predictions of inference calls are: fitted on training steps, judged on forward passes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from ..offers.rows import Accelerator
from .beyond import inference_rows
from .cases import examples_of
from .coefficients import Coefficients
from .corpus import Measurement
from .heldout import predict_case
from .interval import interval_of
from .steptime import Basis
from .store import Traced

__all__ = ["FILE", "Ends", "inference_ends", "inference_ends_of", "inference_to_json", "load_inference"]

FORMAT = "gpuplan.inference/1"
FILE = "inference.json"
STACKS = ("keras", "eager", "tuned")
FEWEST_ARCHITECTURES = 4  # of a stack; with fewer, all stacks stand for it

Ends = tuple[float, float]


def inference_ends(
    corpus: Sequence[Measurement], accelerators: Mapping[str, Accelerator], coefficients: Coefficients, *,
    progress: Callable[[str], None], known: Mapping[str, Traced] | None = None,
) -> dict[str, Ends]:  # fmt: skip
    """Return the 10th and 90th percentile of log(measured / predicted) of inference calls, by stack.

    No inference call is among what was fitted, so that nothing is left out for it; training steps of the same
    architectures are. Every architecture weighs the same.

    Args:
        corpus: All published rows.
        accelerators: The catalog's, by name.
        coefficients: Fitted on training steps.
        progress: Is told what is being traced.
        known: Traces by `run_key`; None: those that are packaged.
    """
    examples = examples_of(inference_rows(corpus), accelerators, progress=progress, known=known)
    logs = [
        (
            e.measurement.stack,
            e.measurement.family,
            math.log(e.case.step_s / predict_case(e.case, coefficients)),
        )
        for e in examples
    ]

    def of(stack: str) -> Ends:
        own = [(log, family) for kind, family, log in logs if kind == stack]
        if len({family for _, family in own}) < FEWEST_ARCHITECTURES:
            own = [(log, family) for _, family, log in logs]
        return interval_of([log for log, _ in own], [family for _, family in own])

    return {stack: of(stack) for stack in STACKS} if logs else {}


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

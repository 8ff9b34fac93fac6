"""The bottleneck of a step, its share, and a sentence on what would help."""

from __future__ import annotations

from collections.abc import Mapping

from ...frozen import Frozen
from ...predict.step_time import NoPrediction, StepTime
from .memory import MemoryVerdict

__all__ = ["WHY", "StepBottleneck", "find_step_bottleneck"]

WHY: Mapping[str, str] = {
    "compute": "arithmetic: more FLOP/s or a lower precision help",
    "memory bandwidth": "reading and writing memory: faster memory helps, more FLOP/s alone do not",
    "launch": "starting kernels: a larger batch helps, a faster GPU will not help",
    "input": "waiting for input: more vCPUs or less work for each sample help, a faster GPU will not help",
    "link": "exchanging gradients: fewer devices, faster links or a larger batch help",
}


class StepBottleneck(Frozen):
    """Bottleneck of a step on some devices.

    Args:
        name: One of the limiters, or `memory` where the step does not fit.
        share: Of the step; None where it is not known [-].
        why: A sentence.
    """

    name: str
    share: float | None
    why: str


def find_step_bottleneck(step: StepTime | NoPrediction, memory: MemoryVerdict) -> StepBottleneck | None:
    """Return the bottleneck of a step; None when its time is unknown."""
    if memory.fits is False:
        return StepBottleneck(
            name="memory", share=None, why="it does not fit: a smaller batch or more memory is needed"
        )
    if not isinstance(step, StepTime):
        return None
    whole = sum(step.parts_s.values())
    share = step.parts_s.get(step.limiter, 0.0) / whole if whole > 0 else None
    part = "most" if share is None else f"{share:.0%}"
    return StepBottleneck(name=step.limiter, share=share, why=f"{part} of a step is {WHY[step.limiter]}")

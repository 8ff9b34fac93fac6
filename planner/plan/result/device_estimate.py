"""A workload on a kind and number of devices, whoever rents them out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...frozen import Frozen
from ...predict.step_time import NoPrediction, StepTime
from ...units import Interval
from ..execution.memory import MemoryVerdict
from ..execution.memory_parts import Remedy, memory_note
from ..execution.run_length import RunLength

__all__ = ["WHY", "DeviceEstimate", "StepBottleneck", "find_step_bottleneck"]


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


class DeviceEstimate(Frozen):
    """The workload on a kind and number of devices, whoever rents them out.

    Args:
        run: Steps and global batch size.
        step_time: Of one step, or why no time can be given.
        train_time_s: Of all steps; None when the step time or the run's length is unknown [s].
        memory: Whether it fits.
        remedies: What would make it fit where it does not, or hardly does.
        compatibility: What must be known to run it there at all; empty when all is as usual.
        runs: Whether Keras runs there with any build of a framework; None: not known.
    """

    run: RunLength
    step_time: StepTime | NoPrediction
    train_time_s: Interval | None
    memory: MemoryVerdict
    remedies: tuple[Remedy, ...] = ()
    compatibility: str = ""
    runs: bool | None = None

    @cached_property
    def is_ruled_out(self) -> bool:
        """Whether it is known that the step cannot be run there: it does not fit, or Keras does not run."""
        return self.memory.fits is False or self.runs is False

    @cached_property
    def step_time_s(self) -> Interval | None:
        """Time of one step, None when unknown [s]."""
        return self.step_time.time_s if isinstance(self.step_time, StepTime) else None

    @cached_property
    def bottleneck(self) -> StepBottleneck | None:
        """Bottleneck of a step; None when its time is unknown."""
        return find_step_bottleneck(self.step_time, self.memory)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was assumed or why there is no time, in sentences."""
        about = self.step_time.note if isinstance(self.step_time, StepTime) else self.step_time.reason
        return tuple(
            note
            for note in (about, self.run.note, memory_note(self.memory, self.remedies), self.compatibility)
            if note
        )

    @cached_property
    def shared_json(self) -> dict[str, Any]:
        """The part of `offers[]` that offers of the same devices have in common, worked out once."""
        step = self.step_time if isinstance(self.step_time, StepTime) else None
        limit, memory = self.bottleneck, self.memory
        return {
            "step_time_s": step.time_s.to_json() if step else None,
            "steps": self.run.steps,
            "global_batch_size": self.run.global_batch_size,
            "batch_size_per_device": -(-self.run.global_batch_size // self.run.replicas),
            "train_time_s": self.train_time_s.to_json() if self.train_time_s else None,
            "memory_bytes": memory.needed_bytes,
            "memory_available_bytes": memory.available_bytes,
            "memory_fits": memory.fits,
            "memory_verdict": memory.verdict,
            "memory_remedies": [remedy.to_json() for remedy in self.remedies],
            "largest_batch_size": memory.largest_batch_size,
            "compatibility": self.compatibility,
            "runs": self.runs,
            "basis": step.basis if step else None,
            "limiter": limit.name if limit else None,
            "limiter_share": limit.share if limit else None,
            "limiter_why": limit.why if limit else None,
        }

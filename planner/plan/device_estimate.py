"""Estimate of a workload on a kind and number of devices, whatever their provider, and the length of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..estimate_document import OWN_KEYS
from ..predict.sharding import Sharding
from ..predict.step_time import NoPrediction, StepTime
from ..records import Frozen, round_floats, to_plain
from ..units import Interval
from .memory import MemoryVerdict, Remedy, describe_changes, memory_note

if TYPE_CHECKING:
    from ..workload.model import Workload


class RunLength(Frozen):
    """Length of a run on a number of devices."""

    replicas: int  # data-parallel copies of the model [-]
    global_batch_size: int  # samples of a step over all devices [-]
    steps: int | None  # optimizer steps of the whole run; None if unknown [-]
    note: str = ""  # assumption to show to the user; empty for none


def count_replicas(devices: float) -> int:
    """Return the number of data-parallel copies of the model: one per whole device, at least one [-].

    Example:
        >>> count_replicas(8.0), count_replicas(0.25)
        (8, 1)
    """
    return max(1, math.floor(devices))


# Weak: every device keeps the batch, and the global batch grows. Strong: the devices share one batch, so that
# training is the same step by step on any number of them.
ScalingMode = Literal["weak", "strong"]


def compute_run_length(
    workload: Workload, devices: float, scaling: ScalingMode, *, sharers: str = "devices"
) -> RunLength:
    """Return the run on some devices: each keeps its batch, or they share one, in as many steps as one device.

    Steps that agree with samples and epochs are counted from the epochs, with the incomplete last batch of each.
    Less than one device is a share of a GPU; `sharers` names the units that share the batch, for messages.
    """
    replicas, batch_size = count_replicas(devices), workload.batch_size
    copies = replicas if scaling == "weak" else 1
    samples, epochs, steps, note = workload.samples, workload.epochs, workload.steps, ""
    if samples is not None and epochs is not None and steps in (None, -(-samples // batch_size) * epochs):
        steps = -(-samples // (batch_size * copies)) * epochs
    elif steps is not None and copies > 1:
        shared = -(-steps // copies)
        note = f"{steps} steps on one device are {shared} on {copies}: the same number of samples"
        steps = shared
    if replicas > copies:
        each = -(-batch_size // replicas)
        note = f"a batch of {batch_size} shared by {replicas} {sharers}: {each} samples each"
    return RunLength(replicas=replicas, global_batch_size=batch_size * copies, steps=steps, note=note)


def with_total_epochs(workload: Workload, epochs: int) -> Workload:
    """Return the workload with another number of epochs in all, divided among its phases as before.

    The ends of the phases are rounded to whole epochs. Calls of `evaluate()` and `predict()` stay.
    """
    before = workload.total_epochs
    if not before or epochs == before:
        return workload
    scaled, passed, begun = {}, 0, 0
    for one in workload.phases:
        own = one.epochs or 0
        passed += own
        end = (2 * epochs * passed + before) // (2 * before)
        steps = None if one.steps is None or not own else -(-one.steps * (end - begun) // own)
        scaled[one.fit_call] = replace(one, epochs=end - begun, steps=steps)
        begun = end
    main = scaled[workload.fit_call]
    further = tuple(scaled[one.fit_call] for one in workload.further)
    return replace(workload, epochs=main.epochs, steps=main.steps, further=further)


WHY: Mapping[str, str] = {
    "compute": "arithmetic: more FLOP/s or a lower precision helps",
    "memory bandwidth": "reading and writing memory: faster memory helps, more FLOP/s alone does not",
    "launch": "starting kernels: a larger batch helps, a faster GPU does not",
    "input": "waiting for input: more vCPUs or less work per sample helps, a faster GPU does not",
    "link": "exchanging gradients: fewer devices, faster links or a larger batch helps",
}


class StepBottleneck(Frozen):
    """Bottleneck of a step on some devices."""

    name: str  # limiter of the step, or `memory` if the step does not fit
    share: float | None  # share of the step time; None if unknown [-]
    why: str  # sentence on the bottleneck and on what would help


class DeviceEstimate(Frozen):
    """Estimate of a workload on a kind and number of devices, independent of the provider."""

    run: RunLength  # steps and global batch size
    step_time: StepTime | NoPrediction  # time of one step, or the reason why there is no prediction
    memory: MemoryVerdict  # memory check of the step
    remedies: tuple[Remedy, ...] = ()  # measures that would make the step fit, if it does not or is tight
    compatibility: str = ""  # note on software requirements; empty for none
    runs: bool | None = None  # whether any framework build of Keras runs on the device; None if unknown
    sharding: Sharding = Sharding.NONE  # what the devices hold in parts
    # Parts into which the devices divide a batch, or batches that they work on; None if unknown [-]
    replicas: float | None = None
    pass_batch_size: int | None = None  # samples of a pass on one device; None where it is the whole batch [-]
    accumulation_steps: int = 1  # passes for each update: these, times those of the user's optimizer [-]
    # Whether layers recompute their activations in the backward pass, where the user's code says nothing of it
    recomputed: bool = False
    tokens_per_sample: int | None = None  # length of the sequences of a language model; None for other models [-]
    peak_time_s: float | None = None  # time of the products of a step at the datasheet's peak; None if unknown [s]
    # Memory of one device by part; None if it was not divided [bytes]
    memory_parts: Mapping[str, int] | None = None
    # Samples per second that the devices could take, where the input feeds fewer; else None [1/s]
    able_per_s: float | None = None
    # Estimates of the phases of a run of several, in their order; empty for one. The step is that of the longest,
    # steps and training time are of all, and the memory is that of the largest
    phases: tuple[DeviceEstimate, ...] = ()

    @cached_property
    def is_ruled_out(self) -> bool:
        """Whether the step is known not to run: it does not fit, or Keras does not support the device."""
        return self.memory.fits is False or self.runs is False

    @cached_property
    def step_time_s(self) -> Interval | None:
        """Time of one step, None if unknown [s]."""
        return self.step_time.time_s if isinstance(self.step_time, StepTime) else None

    @cached_property
    def train_time_s(self) -> Interval | None:
        """Time of all steps; None if the step time or the run's length is unknown [s]."""
        if self.phases:
            times = [one.train_time_s for one in self.phases if one.train_time_s is not None]
            return sum(times[1:], times[0]) if len(times) == len(self.phases) else None
        if self.step_time_s is None or self.run.steps is None:
            return None
        return self.step_time_s.scaled(self.run.steps)

    @cached_property
    def samples_per_s(self) -> Interval | None:
        """Throughput of all devices; None if the step time is unknown [1/s]."""
        return None if self.step_time_s is None else _divide(self.run.global_batch_size, self.step_time_s)

    @cached_property
    def tokens_per_s(self) -> Interval | None:
        """Throughput of all devices in tokens; None for other models, or if unknown [1/s]."""
        if self.step_time_s is None or self.tokens_per_sample is None:
            return None
        return _divide(self.run.global_batch_size * self.tokens_per_sample, self.step_time_s)

    @cached_property
    def mfu(self) -> Interval | None:
        """Model FLOPs utilization: time of the products at the peak rate / step time [-]."""
        if self.step_time_s is None or self.peak_time_s is None:
            return None
        return _divide(self.peak_time_s, self.step_time_s)

    @cached_property
    def bottleneck(self) -> StepBottleneck | None:
        """Bottleneck of a step; None if its time is unknown."""
        if self.memory.fits is False:
            why = "it does not fit: a smaller batch or more memory is needed"
            return StepBottleneck(name="memory", share=None, why=why)
        step = self.step_time
        if not isinstance(step, StepTime):
            return None
        whole = sum(step.parts_s.values())
        share = step.parts_s.get(step.limiter, 0.0) / whole if whole > 0 else None
        part = "most" if share is None else f"{share:.0%}"
        return StepBottleneck(name=step.limiter, share=share, why=f"{part} of a step is {WHY[step.limiter]}")

    @property
    def changes(self) -> str:
        """Changes of the script with which the step fits, as a sentence; empty for none."""
        return describe_changes(
            micro_batch_size=self.pass_batch_size,
            accumulation_steps=self.accumulation_steps,
            recomputed=self.recomputed,
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences on assumptions, memory and compatibility, or on the missing prediction."""
        about = self.step_time.note if isinstance(self.step_time, StepTime) else self.step_time.reason
        memory = memory_note(self.memory, self.remedies)
        return tuple(filter(None, (about, self.run.note, self.changes, memory, self.compatibility)))

    @cached_property
    def shared_json(self) -> dict[str, Any]:
        """What all offers of the same devices share, at full precision."""
        step = self.step_time if isinstance(self.step_time, StepTime) else None
        limit, memory, parts = self.bottleneck, self.memory, self.memory_parts
        is_whole = self.sharding == Sharding.NONE  # memory as in `workload.memory_parts_bytes`
        phases = [
            {
                "step_time_s": to_plain(one.step_time_s),
                "steps": one.run.steps,
                "train_time_s": to_plain(one.train_time_s),
                "memory_bytes": one.memory.needed_bytes,
            }
            for one in self.phases
        ]
        return {
            "step_time_s": to_plain(step.time_s) if step else None,
            "steps": self.run.steps,
            "global_batch_size": self.run.global_batch_size,
            "batch_size_per_device": -(-self.run.global_batch_size // self.run.replicas),
            "train_time_s": to_plain(self.train_time_s),
            "tokens_per_s": to_plain(self.tokens_per_s),
            "mfu": to_plain(self.mfu),
            "memory_bytes": memory.needed_bytes,
            "memory_available_bytes": memory.available_bytes,
            "memory_fits": memory.fits,
            "memory_verdict": memory.verdict,
            "memory_remedies": to_plain(self.remedies),
            "largest_batch_size": memory.largest_batch_size,
            "shard": str(self.sharding),
            "micro_batch_size": self.pass_batch_size or -(-self.run.global_batch_size // self.run.replicas),
            "gradient_accumulation_steps": self.accumulation_steps,
            "recomputed": self.recomputed,
            "compatibility": self.compatibility,
            "runs": self.runs,
            "basis": step.basis if step else None,
            "limiter": limit.name if limit else None,
            "limiter_share": limit.share if limit else None,
            "limiter_why": limit.why if limit else None,
            **({} if is_whole or parts is None else {"memory_parts_bytes": dict(parts)}),
            **({"phases": phases} if phases else {}),
            "notes": list(self.notes),
        }

    @cached_property
    def entry_json(self) -> dict[str, Any]:
        """Entry of `devices[]`, one object."""
        rounded: dict[str, Any] = round_floats(self.shared_json)
        return rounded

    @cached_property
    def own_json(self) -> dict[str, Any]:
        """Members of the entry that each offer has too."""
        return {key: self.entry_json[key] for key in OWN_KEYS}


def _divide(amount: float, time_s: Interval) -> Interval:
    """Return an amount over a time."""
    return Interval(low=amount / time_s.high, mid=amount / time_s.mid, high=amount / time_s.low)


def combine_phases(phases: Sequence[DeviceEstimate], *, longest: int) -> DeviceEstimate:
    """Return the estimate of a run of several phases, of which that at `longest` has the most work."""
    if len(phases) == 1:
        return phases[0]
    main = phases[longest]
    unknown = (one.step_time for one in phases if isinstance(one.step_time, NoPrediction))
    steps = [one.run.steps for one in phases if one.run.steps is not None]
    largest = max(phases, key=lambda one: one.memory.needed_bytes)
    return replace(
        main,
        run=replace(main.run, steps=sum(steps) if len(steps) == len(phases) else None),
        step_time=next(unknown, main.step_time),
        memory=largest.memory,
        remedies=largest.remedies,
        memory_parts=largest.memory_parts,
        phases=tuple(phases),
    )

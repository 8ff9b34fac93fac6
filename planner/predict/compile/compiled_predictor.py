"""Predictor whose steps carry the memory that a compiler states; their times are those of another predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...offers.rows import Accelerator
from ...workload.model import Workload
from ..multi_device.interconnect import UNKNOWN_HOST, HostSpec
from ..step_time import NoPrediction, StatedMemory, StepPredictor, StepTime, join_notes
from .compiled import CompiledStep
from .targets import CompileTarget


class CompiledPredictor:
    """Predictor that adds the compilers' memory to the steps of one workload, and nothing to others."""

    def __init__(
        self,
        inner: StepPredictor,
        workload: Workload,
        known: Mapping[str, tuple[CompileTarget, CompiledStep]],
    ) -> None:
        """Take a predictor of the times, the workload that was compiled, and its results by accelerator."""
        self.inner, self.workload, self.known = inner, workload, known

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Return the time of one step, every device processing ``workload.batch_size`` samples.

        At another batch size than the compiled one, a step that does not fit does not at a larger one either,
        and a failed compilation has no memory at any.
        """
        plain = self.inner.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        known = self.known.get(accelerator.name)
        if known is None or devices < 1 or not _is_same_program(workload, self.workload):
            return plain
        target, found = known
        if workload.batch_size != self.workload.batch_size:
            is_smaller = workload.batch_size < self.workload.batch_size
            if found.fault is None or (is_smaller and not found.has_failed):
                return plain
            found = replace(found, needed_bytes=None)
        return _add_memory(plain, target, found)


def _is_same_program(one: Workload, other: Workload) -> bool:
    """Return whether two workloads are the same model run in the same way, at any batch size."""
    names = ("model", "mode", "precision", "compiled", "parameters", "trainable_parameters")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _add_memory(
    plain: StepTime | NoPrediction, target: CompileTarget, found: CompiledStep
) -> StepTime | NoPrediction:
    """Return a prediction with the compiler's memory, or with the reason why there is none."""
    if found.has_failed:
        note = f"not compiled: {found.message}"
        if isinstance(plain, NoPrediction):
            return NoPrediction(f"{plain.reason}; {note}")
        return replace(plain, note=join_notes(plain.note, note))
    if isinstance(plain, NoPrediction):
        return plain
    if found.fault is not None:
        note = f"memory: does not fit according to the compiler for {target.accelerator}"
        fits: bool | None = False
    else:
        note = f"memory as compiled for {target.accelerator} by {found.compiler.split(' jax')[0]}"
        fits = True if target.platform == "tpu" else None  # the TPU compiler rejects steps that do not fit
    needed = None if found.needed_bytes is None else found.needed_bytes * target.cores
    memory = StatedMemory(needed_bytes=needed, fits=fits)
    return replace(plain, memory=memory, note=join_notes(plain.note, note, target.note))

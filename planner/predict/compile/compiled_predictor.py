"""Predictor whose steps carry the memory that a compiler states; their times are those of another predictor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...offers.rows import Accelerator
from ...workload.model import Workload
from ..multi_device.interconnect import UNKNOWN_HOST, HostSpec
from ..step_time import NoPrediction, StatedMemory, StepPredictor, StepTime, join_notes
from .compiled import CompiledStep, CompileFault
from .targets import CompileTarget


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compilation of a program for one target, with its result.

    Args:
        target: Compilation target.
        batch_size: Samples of each accelerator [-].
        result: Memory of one of its devices, or the reason why it is missing.
    """

    target: CompileTarget
    batch_size: int
    result: CompiledStep | CompileFault

    @property
    def is_refused(self) -> bool:
        """Whether the compiler says that the step does not fit."""
        return isinstance(self.result, CompileFault) and self.result.kind == "does not fit"

    def at(self, batch_size: int) -> Compilation | None:
        """Return what it says of a batch size; None for nothing.

        A step that does not fit does not at a larger batch size either, and a failed compilation has no memory
        at any.
        """
        if batch_size == self.batch_size:
            return self
        if isinstance(self.result, CompiledStep) or (self.is_refused and batch_size < self.batch_size):
            return None
        return replace(self, result=replace(self.result, needed_bytes=None))


class CompiledPredictor:
    """Predictor that adds the compilers' memory to the steps of one workload, and nothing to others."""

    def __init__(self, inner: StepPredictor, workload: Workload) -> None:
        """Take a predictor of the times, and the workload that is compiled."""
        self.inner, self.workload = inner, workload
        self._known: dict[tuple[str, float], Compilation] = {}

    def learn(self, found: Compilation, *, devices: int = 1) -> None:
        """Add a compilation: of a program for each accelerator, or of one sharded over several.

        Args:
            found: Compilation and result.
            devices: Accelerators that run one program [-].
        """
        self._known[found.target.accelerator, devices] = found

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Return the time of one step, every device processing ``workload.batch_size`` samples."""
        plain = self.inner.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        if devices < 1 or not _is_same_program(workload, self.workload):
            return plain
        for count in dict.fromkeys((devices, 1)):
            known = self._known.get((accelerator.name, count))
            found = None if known is None else known.at(workload.batch_size)
            if found is not None:
                return add_memory(plain, found)
        return plain


def _is_same_program(one: Workload, other: Workload) -> bool:
    """Return whether two workloads are the same model run in the same way, at any batch size."""
    names = ("model", "mode", "precision", "compiled", "parameters", "trainable_parameters")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def add_memory(plain: StepTime | NoPrediction, found: Compilation) -> StepTime | NoPrediction:
    """Return a prediction with the compiler's memory, or with the reason why there is none.

    Args:
        plain: Prediction without a compiler; of a whole model on each device if it is compiled in parts.
        found: Compilation and result.
    """
    target, result = found.target, found.result
    if isinstance(result, CompileFault) and not found.is_refused:
        note = f"not compiled: {result.message}"
        if isinstance(plain, NoPrediction):
            return NoPrediction(f"{plain.reason}; {note}")
        return replace(plain, note=join_notes(plain.note, note))
    if isinstance(plain, NoPrediction):
        return plain
    needed = None if result.needed_bytes is None else result.needed_bytes * target.cores
    if isinstance(result, CompileFault):
        note = f"memory: does not fit according to the compiler for {target.accelerator}"
        fits: bool | None = False
    else:
        note = f"memory as compiled for {target.accelerator} by {result.compiler.split(' jax')[0]}"
        fits = True if target.platform == "tpu" else None  # the TPU compiler rejects steps that do not fit
    if target.devices > 1:
        note += (
            f", sharded over {target.devices} devices by the model's own code; the time assumes a whole model "
            "on each device"
        )
    memory = StatedMemory(needed_bytes=needed, fits=fits)
    return replace(plain, memory=memory, note=join_notes(plain.note, note, target.note))

"""Predicts steps from compilations where there are any, and as another predictor does where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

from ...offers.rows import Accelerator
from ...units import GIGA, MEGA, MS_PER_S
from ...workload.model import Workload
from ..interval import around
from ..links import UNKNOWN, Machine
from ..parallel import several_devices
from ..steptime import Limiter, StatedMemory, StepTime, Unpredicted
from .compiled import Compiled, CompileFault
from .constants import Constants, load_constants
from .cuda import gpu_parts_s, table_from
from .targets import Target
from .tpu import core_s, slice_parts_s

__all__ = ["CompiledPredictor", "Outcome"]

BITS_PER_BYTE = 8.0


class Modelled(Protocol):
    """Whatever knows the time of a step without a compiler."""

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, machine: Machine = UNKNOWN,
        hosts: int = 1,
    ) -> StepTime | Unpredicted:  # fmt: skip
        """Return the time of one step, or why none can be given."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of compiling one workload for one target."""

    target: Target
    result: Compiled | CompileFault


@dataclass(frozen=True, slots=True)
class _Several:
    devices: float
    machine: Machine
    hosts: int


class CompiledPredictor:
    """Predicts a workload's steps by what compilers say of it; other workloads, and other chips, as before.

    A measured step stays measured. Where the compiler failed, the step stays modelled and says why. Where compiled
    and modelled disagree by more than both intervals, the note holds both.
    """

    def __init__(self, inner: Modelled, workload: Workload, outcomes: Mapping[str, Outcome]) -> None:
        """Take a predictor, the workload that was compiled, and what came of it by accelerator."""
        self.inner, self.workload, self.outcomes = inner, workload, outcomes

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, machine: Machine = UNKNOWN,
        hosts: int = 1,
    ) -> StepTime | Unpredicted:  # fmt: skip
        """Return the time of one step, every device working on ``workload.batch_size`` samples."""
        plain = self.inner.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        outcome = self.outcomes.get(accelerator.name)
        if outcome is None or workload is not self.workload or devices < 1:
            return plain
        if isinstance(outcome.result, CompileFault):
            return _without(outcome.result, plain, outcome.target, accelerator)
        several = _Several(devices, machine, hosts)
        return _compiled(outcome, outcome.result, workload, accelerator, several=several, plain=plain)


def _without(
    fault: CompileFault, plain: StepTime | Unpredicted, target: Target, accelerator: Accelerator
) -> StepTime | Unpredicted:
    note = f"not compiled: {fault.message}"
    if isinstance(plain, Unpredicted):
        return Unpredicted(f"{plain.reason}; {note}")
    memory = plain.memory
    if fault.kind == "does not fit":
        note = f"memory: does not fit, says the compiler for {accelerator.name}"
        needed = fault.needed_bytes
        memory = StatedMemory(needed_bytes=None if needed is None else needed * target.cores, fits=False)
    return replace(plain, memory=memory, note="; ".join(filter(None, (plain.note, note))))


def _compiled(
    outcome: Outcome, result: Compiled, workload: Workload, accelerator: Accelerator, *, several: _Several,
    plain: StepTime | Unpredicted,
) -> StepTime | Unpredicted:  # fmt: skip
    target, devices = outcome.target, several.devices
    if isinstance(plain, StepTime) and plain.basis == "measured":
        return replace(plain, memory=_memory(target, result))
    constants = load_constants()[target.platform]
    parts_s = _parts_s(target, result, workload, accelerator, devices)
    if parts_s is None:
        return _only_memory(plain, target, result, "its time cannot be worked out")
    found = StepTime(
        time_s=around(sum(parts_s.values()), *constants.interval), basis="compiled", parts_s=parts_s,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])), memory=_memory(target, result),
        note="; ".join(filter(None, (_note(target, result, devices), target.note, _trust(constants)))),
    )  # fmt: skip
    if target.platform == "cuda" and not constants.checked and isinstance(plain, StepTime):
        return _only_memory(
            plain, target, result, f"its kernels take {found.time_s.mid * MS_PER_S:.3g} ms, unchecked"
        )
    if target.platform == "cuda" and devices > 1:
        shared = several_devices(
            found, gradient_bytes=workload.memory.gradient_bytes, accelerator=accelerator, devices=devices,
            machine=several.machine, hosts=several.hosts,
        )  # fmt: skip
        if isinstance(shared, Unpredicted):
            return shared
        found = shared
    notes = (found.note, disagreement(found, plain, result))
    return replace(found, note="; ".join(filter(None, notes)))


def _parts_s(
    target: Target, result: Compiled, workload: Workload, accelerator: Accelerator, devices: float
) -> dict[str, float] | None:
    if target.platform == "tpu":
        return _tpu_parts_s(target, result, workload, accelerator, devices)
    if not result.kernels:
        return None
    found = gpu_parts_s(
        table_from(result.kernels), accelerator, precision=workload.precision,
        input_bytes=float(workload.memory.input_bytes), needed_bytes=result.needed_bytes,
        slowdown=load_constants()["cuda"].slowdown,
    )  # fmt: skip
    return None if isinstance(found, Unpredicted) else found


def _only_memory(
    plain: StepTime | Unpredicted, target: Target, result: Compiled, why: str
) -> StepTime | Unpredicted:
    """Return a step whose memory alone is the compiler's, and why its time is not."""
    if isinstance(plain, Unpredicted):
        return plain
    note = f"memory as compiled for {target.accelerator}; {why}"
    notes = (plain.note, note, target.note)
    return replace(plain, memory=_memory(target, result), note="; ".join(filter(None, notes)))


def _trust(constants: Constants) -> str:
    return "" if constants.checked else "the compiler's estimate as it is, its interval assumed"


def _memory(target: Target, result: Compiled) -> StatedMemory:
    fits = True if target.platform == "tpu" else None  # a TPU's compiler refuses what does not fit
    return StatedMemory(needed_bytes=result.needed_bytes * target.cores, fits=fits)


def _tpu_parts_s(
    target: Target, result: Compiled, workload: Workload, accelerator: Accelerator, devices: float
) -> dict[str, float] | None:
    """Return the parts of a step on TPU chips; None where clock or estimates are missing."""
    if not accelerator.boost_mhz or not result.cycles:
        return None
    constants = load_constants()["tpu"]
    link = accelerator.ici_gbit_per_s_per_direction
    return slice_parts_s(
        compute_s=core_s(cycles=result.total_cycles, clock_hz=accelerator.boost_mhz * MEGA),
        slowdown=constants.slowdown, fixed_s=constants.fixed_s,
        gradient_bytes=float(workload.memory.gradient_bytes), cores=devices * target.cores,
        link_bytes_per_s=link / BITS_PER_BYTE * GIGA if link else None,
    )  # fmt: skip


def _note(target: Target, result: Compiled, devices: float) -> str:
    cores = devices * target.cores
    shared = f", gradients of {cores:g} cores summed" if target.platform == "tpu" and cores > 1 else ""
    return f"compiled for {target.accelerator} by {result.compiler.split(' jax')[0]}{shared}"


def disagreement(found: StepTime, plain: StepTime | Unpredicted, result: Compiled) -> str:
    """Return what the model says where it lies outside, and where the compiler's time goes; else empty."""
    if isinstance(plain, Unpredicted):
        return ""
    one, other = found.time_s, plain.time_s
    if one.low <= other.high and other.low <= one.high:
        return ""
    heaviest = max(result.cycles, key=lambda kind: result.cycles[kind]) if result.cycles else ""
    share = result.cycles[heaviest] / result.total_cycles if heaviest else 0.0
    where = f": {share:.0%} of the compiler's cycles are {heaviest}" if heaviest else ""
    return (
        f"{plain.basis} says {other.low * MS_PER_S:.3g} to {other.high * MS_PER_S:.3g} ms, and most of it "
        f"{plain.limiter}{where}"
    )

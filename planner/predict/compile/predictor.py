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
from ..runs import mode_of
from ..steptime import Limiter, StatedMemory, StepTime, Unpredicted, notes_text
from .between import between
from .compiled import Compiled, CompileFault
from .constants import Constants, load_constants
from .cuda import gpu_parts_s
from .laid_out import laid_out_step, without
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


@dataclass(frozen=True, slots=True)
class _Point:
    """What came of compiling a workload at one batch size."""

    workload: Workload
    outcome: Outcome


class CompiledPredictor:
    """Predicts a workload's steps by what compilers say of it; other workloads, and other chips, as before.

    A measured step stays measured. Where the compiler failed, the step stays modelled and says why. Where compiled
    and modelled disagree by more than both intervals, the note holds both. Between two batch sizes that were
    compiled, time and memory lie on the line through both.
    """

    def __init__(self, inner: Modelled, workload: Workload, outcomes: Mapping[str, Outcome]) -> None:
        """Take a predictor, the workload that was compiled, and what came of it by accelerator."""
        self.inner, self.workload = inner, workload
        self._points: dict[str, dict[int, _Point]] = {}
        self._laid_out: dict[tuple[str, float], tuple[int, Outcome]] = {}
        for name, outcome in outcomes.items():
            self.learn(workload, name, outcome)

    def learn(self, workload: Workload, accelerator: str, outcome: Outcome) -> None:
        """Take what came of compiling the same program, perhaps at another batch size."""
        points = self._points.setdefault(accelerator, {})
        points[workload.batch_size] = _Point(workload, outcome)

    def learn_laid_out(self, batch_size: int, devices: int, outcome: Outcome) -> None:
        """Take what came of compiling the program as its own code lays it out over accelerators.

        Args:
            batch_size: Of all of them together [-].
            devices: Accelerators [-].
            outcome: What came of it.
        """
        self._laid_out[outcome.target.accelerator, devices] = batch_size, outcome

    @property
    def targets(self) -> tuple[Target, ...]:
        """What was compiled for, as the compilers call it."""
        return tuple(next(iter(points.values())).outcome.target for points in self._points.values())

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, machine: Machine = UNKNOWN,
        hosts: int = 1,
    ) -> StepTime | Unpredicted:  # fmt: skip
        """Return the time of one step, every device working on ``workload.batch_size`` samples."""
        plain = self.inner.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        points = self._points.get(accelerator.name, {})
        if devices < 1 or not _same_program(workload, self.workload):
            return plain
        together, laid_out = self._laid_out.get((accelerator.name, devices), (0, None))
        if laid_out is not None and -(-together // int(devices)) == workload.batch_size:
            return laid_out_step(plain, laid_out.target, laid_out.result, accelerator)
        several = _Several(devices, machine, hosts)
        if workload.batch_size in points:
            return _at(points[workload.batch_size], workload, accelerator, several, plain)
        around_it = _around(workload.batch_size, points)
        if around_it is None:
            return _beyond(workload.batch_size, points, accelerator, plain)
        ends = [_at(point, point.workload, accelerator, several, plain) for point in around_it]
        return between(plain, ends, [point.workload.batch_size for point in around_it], workload.batch_size)


def _at(
    point: _Point, workload: Workload, accelerator: Accelerator, several: _Several,
    plain: StepTime | Unpredicted,
) -> StepTime | Unpredicted:  # fmt: skip
    outcome = point.outcome
    if isinstance(outcome.result, CompileFault):
        return without(outcome.result, plain, outcome.target, accelerator)
    return _compiled(outcome, outcome.result, workload, accelerator, several=several, plain=plain)


def _beyond(
    batch_size: int, points: Mapping[int, _Point], accelerator: Accelerator, plain: StepTime | Unpredicted
) -> StepTime | Unpredicted:
    """Return a step that no two compilations enclose: as it is without them, and why; refusals stay."""
    for size, point in sorted(points.items()):
        result, target = point.outcome.result, point.outcome.target
        if isinstance(result, CompileFault) and (result.kind != "does not fit" or size < batch_size):
            told = replace(result, needed_bytes=None)
            return without(told, plain, target, accelerator)
    return plain


def _same_program(one: Workload, other: Workload) -> bool:
    """Return whether two workloads are one model run in one way, at whatever batch size."""
    names = ("model", "mode", "precision", "compiled", "parameters", "trainable_parameters")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _around(batch_size: int, points: Mapping[int, _Point]) -> tuple[_Point, _Point] | None:
    """Return the nearest compiled batch sizes below and above; None where there is none on one side."""
    sizes = [size for size, point in points.items() if isinstance(point.outcome.result, Compiled)]
    below = max((size for size in sizes if size < batch_size), default=None)
    above = min((size for size in sizes if size > batch_size), default=None)
    return None if below is None or above is None else (points[below], points[above])


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
        note=notes_text(_note(target, result, devices), target.note, _trust(constants)),
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
    return replace(found, note=notes_text(*notes))


def _parts_s(
    target: Target, result: Compiled, workload: Workload, accelerator: Accelerator, devices: float
) -> dict[str, float] | None:
    if target.platform == "tpu":
        return _tpu_parts_s(target, result, workload, accelerator, devices)
    if not result.kernels:
        return None
    found = gpu_parts_s(
        result.kernels, accelerator, precision=workload.precision,
        input_bytes=float(workload.memory.input_bytes), needed_bytes=result.needed_bytes,
        slowdown=load_constants()["cuda"].slowdown, stack=mode_of("keras", workload.mode),
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
    return replace(plain, memory=_memory(target, result), note=notes_text(*notes))


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

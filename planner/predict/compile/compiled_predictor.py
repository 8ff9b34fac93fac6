"""Predictor that uses compilations if available, and another predictor otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from ...offers.rows import Accelerator
from ...units import GIGA, MEGA, MS_PER_S
from ...workload.model import Workload
from ..interval.adaptive import interval_around
from ..keras_defaults import find_execution_precision
from ..multi_device.data_parallel import scale_to_devices
from ..multi_device.interconnect import UNKNOWN_HOST, HostSpec
from ..run_config import append_mode
from ..step_time import Limiter, NoPrediction, StatedMemory, StepPredictor, StepTime, join_notes
from .compiled import CompiledStep, CompileFault
from .constants import Constants, load_constants
from .cuda import compute_gpu_parts_s
from .interpolate import interpolate_step
from .sharded import build_sharded_step, build_uncompiled_step
from .targets import CompileTarget
from .tpu import compute_core_s, compute_slice_parts_s

BITS_PER_BYTE = 8.0


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compilation of one workload for one target, with its result."""

    target: CompileTarget
    result: CompiledStep | CompileFault


@dataclass(frozen=True, slots=True)
class _DeviceGroup:
    devices: float
    machine: HostSpec
    hosts: int


@dataclass(frozen=True, slots=True)
class _Point:
    """Compilation of a workload at one batch size."""

    workload: Workload
    outcome: Compilation


class CompiledPredictor:
    """Predictor of one workload's steps from compilations; other workloads and chips are delegated.

    A measured step stays measured. If compilation failed, the step stays modelled, with the reason. If
    compiled and modelled times disagree by more than both intervals, the note gives both. Between two
    compiled batch sizes, time and memory are interpolated linearly.
    """

    def __init__(self, inner: StepPredictor, workload: Workload, outcomes: Mapping[str, Compilation]) -> None:
        """Take a predictor, the compiled workload, and the compilations by accelerator."""
        self.inner, self.workload = inner, workload
        self._points: dict[str, dict[int, _Point]] = {}
        self._laid_out: dict[tuple[str, float], tuple[int, Compilation]] = {}
        for name, outcome in outcomes.items():
            self.learn(workload, name, outcome)

    def learn(self, workload: Workload, accelerator: str, outcome: Compilation) -> None:
        """Add a compilation of the same program, possibly at another batch size."""
        points = self._points.setdefault(accelerator, {})
        points[workload.batch_size] = _Point(workload, outcome)

    def learn_laid_out(self, batch_size: int, devices: int, outcome: Compilation) -> None:
        """Add a compilation of the program sharded over accelerators.

        Args:
            batch_size: Global batch size [-].
            devices: Accelerators [-].
            outcome: Compilation and result.
        """
        self._laid_out[outcome.target.accelerator, devices] = batch_size, outcome

    @property
    def targets(self) -> tuple[CompileTarget, ...]:
        """Compilation targets."""
        return tuple(next(iter(points.values())).outcome.target for points in self._points.values())

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
        points = self._points.get(accelerator.name, {})
        if devices < 1 or not _is_same_program(workload, self.workload):
            return plain
        together, laid_out = self._laid_out.get((accelerator.name, devices), (0, None))
        if laid_out is not None and -(-together // int(devices)) == workload.batch_size:
            return build_sharded_step(plain, laid_out.target, laid_out.result, accelerator)
        several = _DeviceGroup(devices, machine, hosts)
        if workload.batch_size in points:
            return _build_step(points[workload.batch_size], workload, accelerator, several, plain)
        around_it = _find_neighbors(workload.batch_size, points)
        if around_it is None:
            return _build_step_outside_range(workload.batch_size, points, accelerator, plain)
        ends = [_build_step(point, point.workload, accelerator, several, plain) for point in around_it]
        return interpolate_step(
            plain, ends, [point.workload.batch_size for point in around_it], workload.batch_size
        )


def _build_step(
    point: _Point,
    workload: Workload,
    accelerator: Accelerator,
    several: _DeviceGroup,
    plain: StepTime | NoPrediction,
) -> StepTime | NoPrediction:
    outcome = point.outcome
    if isinstance(outcome.result, CompileFault):
        return build_uncompiled_step(outcome.result, plain, outcome.target, accelerator)
    return _build_compiled_step(outcome, outcome.result, workload, accelerator, several=several, plain=plain)


def _build_step_outside_range(
    batch_size: int, points: Mapping[int, _Point], accelerator: Accelerator, plain: StepTime | NoPrediction
) -> StepTime | NoPrediction:
    """Return the step at a batch size outside the compiled range: prediction without compiler, and the
    reason.
    """
    for size, point in sorted(points.items()):
        result, target = point.outcome.result, point.outcome.target
        if isinstance(result, CompileFault) and (result.kind != "does not fit" or size < batch_size):
            told = replace(result, needed_bytes=None)
            return build_uncompiled_step(told, plain, target, accelerator)
    return plain


def _is_same_program(one: Workload, other: Workload) -> bool:
    """Return whether two workloads are the same model run in the same way, at any batch size."""
    names = ("model", "mode", "precision", "compiled", "parameters", "trainable_parameters")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _find_neighbors(batch_size: int, points: Mapping[int, _Point]) -> tuple[_Point, _Point] | None:
    """Return the nearest compiled batch sizes below and above; None if one is missing."""
    sizes = [size for size, point in points.items() if isinstance(point.outcome.result, CompiledStep)]
    below = max((size for size in sizes if size < batch_size), default=None)
    above = min((size for size in sizes if size > batch_size), default=None)
    return None if below is None or above is None else (points[below], points[above])


def _build_compiled_step(
    outcome: Compilation,
    result: CompiledStep,
    workload: Workload,
    accelerator: Accelerator,
    *,
    several: _DeviceGroup,
    plain: StepTime | NoPrediction,
) -> StepTime | NoPrediction:
    target, devices = outcome.target, several.devices
    if isinstance(plain, StepTime) and plain.basis == "measured":
        return replace(plain, memory=_build_memory(target, result))
    constants = load_constants()[target.platform]
    parts_s = _compute_parts_s(target, result, workload, accelerator, devices)
    if parts_s is None:
        return _build_memory_only_step(plain, target, result, "its time cannot be computed")
    found = StepTime(
        time_s=interval_around(sum(parts_s.values()), *constants.interval),
        basis="compiled",
        parts_s=parts_s,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])),
        memory=_build_memory(target, result),
        note=join_notes(
            _format_note(target, result, devices), target.note, _format_calibration_note(constants)
        ),
    )
    if target.platform == "cuda" and not constants.checked and isinstance(plain, StepTime):
        return _build_memory_only_step(
            plain, target, result, f"its kernels take {found.time_s.mid * MS_PER_S:.3g} ms, unchecked"
        )
    if target.platform == "cuda" and devices > 1:
        shared = scale_to_devices(
            found,
            gradient_bytes=workload.memory.gradient_bytes,
            accelerator=accelerator,
            devices=devices,
            machine=several.machine,
            hosts=several.hosts,
        )
        if isinstance(shared, NoPrediction):
            return shared
        found = shared
    notes = (found.note, format_disagreement(found, plain, result))
    return replace(found, note=join_notes(*notes))


def _compute_parts_s(
    target: CompileTarget, result: CompiledStep, workload: Workload, accelerator: Accelerator, devices: float
) -> dict[str, float] | None:
    if target.platform == "tpu":
        return _compute_tpu_parts_s(target, result, workload, accelerator, devices)
    if not result.kernels:
        return None
    found = compute_gpu_parts_s(
        result.kernels,
        accelerator,
        precision=find_execution_precision(workload, accelerator),
        input_bytes=float(workload.memory.input_bytes),
        needed_bytes=result.needed_bytes,
        slowdown=load_constants()["cuda"].slowdown,
        stack=append_mode("keras", workload.mode),
    )
    return None if isinstance(found, NoPrediction) else found


def _build_memory_only_step(
    plain: StepTime | NoPrediction, target: CompileTarget, result: CompiledStep, why: str
) -> StepTime | NoPrediction:
    """Return a step with the compiler's memory, and the reason for the missing time."""
    if isinstance(plain, NoPrediction):
        return plain
    note = f"memory as compiled for {target.accelerator}; {why}"
    notes = (plain.note, note, target.note)
    return replace(plain, memory=_build_memory(target, result), note=join_notes(*notes))


def _format_calibration_note(constants: Constants) -> str:
    return "" if constants.checked else "the compiler's estimate as it is, its interval assumed"


def _build_memory(target: CompileTarget, result: CompiledStep) -> StatedMemory:
    fits = True if target.platform == "tpu" else None  # the TPU compiler rejects steps that do not fit
    return StatedMemory(needed_bytes=result.needed_bytes * target.cores, fits=fits)


def _compute_tpu_parts_s(
    target: CompileTarget, result: CompiledStep, workload: Workload, accelerator: Accelerator, devices: float
) -> dict[str, float] | None:
    """Return the parts of a step on TPU chips; None if clock or estimates are missing."""
    if not accelerator.boost_mhz or not result.cycles:
        return None
    constants = load_constants()["tpu"]
    link = accelerator.ici_gbit_per_s_per_direction
    return compute_slice_parts_s(
        compute_s=compute_core_s(cycles=result.total_cycles, clock_hz=accelerator.boost_mhz * MEGA),
        slowdown=constants.slowdown,
        fixed_s=constants.fixed_s,
        gradient_bytes=float(workload.memory.gradient_bytes),
        cores=devices * target.cores,
        link_bytes_per_s=link / BITS_PER_BYTE * GIGA if link else None,
    )


def _format_note(target: CompileTarget, result: CompiledStep, devices: float) -> str:
    cores = devices * target.cores
    shared = f", gradients of {cores:g} cores summed" if target.platform == "tpu" and cores > 1 else ""
    return f"compiled for {target.accelerator} by {result.compiler.split(' jax')[0]}{shared}"


def format_disagreement(found: StepTime, plain: StepTime | NoPrediction, result: CompiledStep) -> str:
    """Describe the model's time and the largest share of the compiler's if they disagree; else empty."""
    if isinstance(plain, NoPrediction):
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

"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..frozen import Frozen
from ..offers.rows import Accelerator
from ..workload.model import Workload
from .coefficients import AcceleratorLimits, Coefficients, GenerationCoefficients, load_coefficients
from .device.accelerator_limits import compute_limits, find_generation
from .device.kernel_times import compute_kernel_parts_s, compute_step_s, count_dispatches, with_software_year
from .device.measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .device.systolic_array import systolic_parts_s
from .execution import Execution, find_keras_execution
from .framework_versions import NEWEST_SOFTWARE
from .interval.inference import inference_log_bounds
from .interval.quantiles import interval_around
from .interval.similarity import TimeBreakdown, compute_time_breakdown
from .kernels.table import KernelTable
from .multi_device.data_parallel import scale_to_devices
from .multi_device.interconnect import UNKNOWN_HOST, HostSpec
from .priors import LAST_YEAR, datasheet_interval_key, era_bucket, era_sign
from .run_config import append_mode, compute_memory_pressure, compute_paging_s, name_run_kind
from .step_time import Basis, Limiter, NoPrediction, StepTime

if TYPE_CHECKING:
    from .parameter_vector import FittedCoefficients

__all__ = ["ModelledStep", "Predictor", "compute_kernel_times_s", "model_step"]

BITS_PER_BYTE = 8.0
MEAN = ""  # key of the mean over measured members, used for unmeasured ones


class ModelledStep(Frozen):
    """A modelled step and its time by part and kernel.

    Args:
        total_s: The step [s].
        parts_s: What limits it and how much; they add up [s].
        category: Of each kernel, codes into `kernels.CATEGORIES`, array of [kernels].
        kernels_s: What each takes, all its launches together, array of [kernels] [s].
    """

    total_s: float
    parts_s: dict[str, float]
    category: Any
    kernels_s: Any

    @property
    def breakdown(self) -> TimeBreakdown:
        """Time breakdown of the step; computed on demand, since estimates do not use it."""
        return compute_time_breakdown(self.category, self.kernels_s, step_s=self.total_s)


def model_step(
    table: KernelTable,
    chip: AcceleratorLimits,
    coefficients: FittedCoefficients | Coefficients,
    *,
    generation: str,
    year: int,
    compiled: bool,
    input_bytes: float,
    pressure: float = 0.0,
    paging_s: float | None = None,
    stack: str = MEAN,
    host: str = MEAN,
    software_year: float = NEWEST_SOFTWARE,
) -> ModelledStep:
    """Return the modelled time of one step on one device.

    Args:
        table: Kernels of the step.
        chip: What the accelerator can attain, for these kernels.
        coefficients: What was fitted.
        generation, stack, host: Which coefficients apply; those without measurements get the mean.
        year: When the accelerator came out: it says which era a generation is of that was not measured.
        compiled: True: the host launches one program; False: it dispatches every kernel.
        input_bytes: One batch, fed from the host [bytes].
        pressure: Memory needed over memory usable [-].
        paging_s: See `compute_step_s` [s].
        software_year: When the framework was released [years].
    """
    import numpy as np

    shared = coefficients.shared
    machine = coefficients.hosts.get(host, coefficients.hosts[MEAN])
    launch_s, total, compute, memory = compute_kernel_times_s(
        table, chip, coefficients, generation=generation, year=year, stack=stack, software_year=software_year
    )
    gaps_s = float(launch_s * table.count.sum())
    busy = total - launch_s * table.count
    compute_s = float(busy[compute >= memory].sum())
    device_s = float(total.sum())
    feed_s = input_bytes / machine.feed_bytes_per_s
    whole_s = float(
        compute_step_s(
            device_s=device_s,
            launches=count_dispatches(table, compiled=compiled),
            input_bytes=input_bytes,
            pressure=pressure,
            paging_s=paging_s,
            host=machine,
            shared=shared,
            xp=np,
        )
    )
    return ModelledStep(
        total_s=whole_s,
        parts_s={
            "compute": compute_s,
            "memory bandwidth": device_s - gaps_s - compute_s,
            "launch": gaps_s + whole_s - device_s - feed_s,
            "input": feed_s,
        },
        category=table.category,
        kernels_s=total,
    )


def compute_kernel_times_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    coefficients: FittedCoefficients | Coefficients,
    *,
    generation: str,
    year: int,
    stack: str = MEAN,
    software_year: float = NEWEST_SOFTWARE,
) -> tuple[float, Any, Any, Any]:
    """Return the gap of a launch, and of each kernel the total, arithmetic and memory time [s].

    See `model_step` for the arguments.
    """
    import numpy as np

    if chip.lanes:
        return 0.0, *systolic_parts_s(table, chip, xp=np)
    own = coefficients.generations.get(generation) or extrapolate_generation(coefficients, year=year)
    framework = coefficients.stacks.get(stack, coefficients.stacks[MEAN])
    framework = with_software_year(software_year, framework, coefficients.shared, xp=np)
    return own.launch_s, *compute_kernel_parts_s(table, chip, own, framework, coefficients.shared, xp=np)


def extrapolate_generation(
    coefficients: FittedCoefficients | Coefficients, *, year: int
) -> GenerationCoefficients:
    """Return the expected coefficients of an unmeasured generation: mean * exp(gain * era)."""
    mean, era = coefficients.generations[MEAN], era_sign(year)
    return GenerationCoefficients(
        **{name: getattr(mean, name) * math.exp(gain * era) for name, gain in coefficients.era.items()}
    )


@dataclass(frozen=True, slots=True)
class _WorkloadCache:
    """Results for one workload, which is kept alive so that its id stays unique."""

    workload: Workload
    tables: dict[Execution, KernelTable]
    fingerprint: str
    # by id of the accelerator (kept alive in the value), share of it, stack, feed
    steps: dict[tuple[int, float, str, bool], tuple[Accelerator, StepTime | NoPrediction]]


@dataclass(frozen=True)
class Predictor:
    """Predicts step times; caches the results of each workload for further accelerators."""

    coefficients: Coefficients
    measured: MeasuredSteps

    @classmethod
    def load(cls) -> Predictor:
        """Return the predictor with the packaged coefficients and measurements."""
        return cls(load_coefficients(), load_measured_steps())

    @cached_property
    def _caches(self) -> dict[int, _WorkloadCache]:
        return {}

    def _cache(self, workload: Workload) -> _WorkloadCache:
        if id(workload) not in self._caches:
            plain = Execution(compiled=workload.compiled)
            kernels = plain.build_kernels(workload.ops)
            tables = {plain: plain.build_table(kernels)}
            fingerprint = compute_fingerprint(workload, kernels)
            self._caches[id(workload)] = _WorkloadCache(workload, tables, fingerprint, {})
        return self._caches[id(workload)]

    def kernel_table(self, workload: Workload, accelerator: Accelerator) -> KernelTable:
        """Return the kernel table of a step; accelerators with equal execution share one table."""
        tables = self._cache(workload).tables
        execution = find_keras_execution(workload, accelerator)
        if execution not in tables:
            tables[execution] = execution.build_table(execution.build_kernels(workload.ops))
        return tables[execution]

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        look_up: bool = True,
        stack: str = "keras",
        fed: bool = True,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Return the time of one step, every device working on ``workload.batch_size`` samples.

        Args:
            workload: What runs.
            accelerator: On what.
            devices: How many; a fraction is that share of one device's cores, rates and bandwidth.
            look_up: Whether a measurement of the same work may be used.
            stack: `keras`, `eager` (PyTorch) or `tuned` (a vendor's container).
            fed: Whether every batch is copied from the host before its step.
            machine: How the devices of a host are joined.
            hosts: Machines that hold the devices between them.
        """
        single = self._measured(workload, accelerator) if look_up and devices >= 1 else None
        if single is None:
            modelled = self._modelled(workload, accelerator, share=min(devices, 1.0), stack=stack, fed=fed)
            if isinstance(modelled, NoPrediction):
                return modelled
            single = modelled
        if devices <= 1:
            return single
        return scale_to_devices(
            single,
            gradient_bytes=workload.memory.gradient_bytes,
            accelerator=accelerator,
            devices=devices,
            machine=machine,
            hosts=hosts,
        )

    def _measured(self, workload: Workload, accelerator: Accelerator) -> StepTime | None:
        found = self.measured.find(self._cache(workload).fingerprint, accelerator.name)
        if found is None:
            return None
        modelled = self._modelled(workload, accelerator, share=1.0, stack="keras", fed=True)
        if isinstance(modelled, NoPrediction):
            return None
        scale = found.step_s / modelled.time_s.mid
        return StepTime(
            time_s=interval_around(found.step_s, *self.coefficients.intervals["measured"]["keras"]),
            basis="measured",
            limiter=modelled.limiter,
            note=f"measured: {found.source}",
            parts_s={name: part * scale for name, part in modelled.parts_s.items()},
        )

    def _modelled(
        self, workload: Workload, accelerator: Accelerator, *, share: float, stack: str, fed: bool
    ) -> StepTime | NoPrediction:
        """Return the modelled step of one device; cached for all numbers of devices."""
        steps, key = self._cache(workload).steps, (id(accelerator), share, stack, fed)
        if key not in steps:
            found = self._worked_out(workload, accelerator, share=share, stack=stack, fed=fed)
            steps[key] = (accelerator, found)
        return steps[key][1]

    def _worked_out(
        self, workload: Workload, accelerator: Accelerator, *, share: float, stack: str, fed: bool
    ) -> StepTime | NoPrediction:
        table = self.kernel_table(workload, accelerator)
        chip = compute_limits(accelerator, table=table, precision=workload.precision)
        if isinstance(chip, NoPrediction):
            return chip
        ours = append_mode(stack, workload.mode)
        step = model_step(
            table,
            _part_of(chip, share),
            self.coefficients,
            generation=find_generation(accelerator),
            year=accelerator.year or LAST_YEAR,
            stack=ours,
            host=ours,
            compiled=workload.compiled,
            input_bytes=workload.memory.input_bytes if fed else 0.0,
            pressure=compute_memory_pressure(workload.memory.total_bytes, accelerator, share=share),
            paging_s=compute_paging_s(workload.memory.total_bytes, accelerator, share=share),
        )
        basis, note = self._basis(workload, accelerator)
        return StepTime(
            time_s=interval_around(step.total_s, *self._ends(workload, basis, stack, accelerator)),
            basis=basis,
            limiter=_limiter(step.parts_s),
            parts_s=step.parts_s,
            note=note,
        )

    def _ends(
        self, workload: Workload, basis: Basis, stack: str, accelerator: Accelerator
    ) -> tuple[float, float]:
        """Return the log bounds of a prediction."""
        filed = datasheet_interval_key(_kin_of(accelerator)) if basis == "datasheet" else basis
        ends = self.coefficients.intervals[filed][stack]
        if workload.mode == "infer":
            return inference_log_bounds(ends, basis, stack)
        return ends

    def _basis(self, workload: Workload, accelerator: Accelerator) -> tuple[Basis, str]:
        """Return `modelled` if this kind of run was fitted, else `datasheet` with a note."""
        kind = name_run_kind(accelerator.name, workload.precision, compiled=workload.compiled)
        runs = self.coefficients.fitted_on["runs"]
        if kind in runs or append_mode(kind, workload.mode) in runs:
            return "modelled", ""
        if accelerator.kind == "tpu":
            return "datasheet", f"no measurement of {kind} was fitted: the datasheet's rates on padded arrays"
        known = find_generation(accelerator) in self.coefficients.generations
        whose = f"of {accelerator.architecture}" if known else "the mean of all chips"
        return "datasheet", f"no measurement of {kind} was fitted: efficiencies are {whose}"


def _kin_of(accelerator: Accelerator) -> str:
    """Return the era of an accelerator among the measured chips; empty if none, as for TPUs."""
    return era_bucket(accelerator.year) if accelerator.kind == "gpu" and accelerator.year else ""


def _part_of(chip: AcceleratorLimits, share: float) -> AcceleratorLimits:
    if share >= 1.0:
        return chip
    return replace(
        chip,
        peak_flop_per_s=chip.peak_flop_per_s * share,
        vector_flop_per_s=chip.vector_flop_per_s * share,
        memory_bytes_per_s=chip.memory_bytes_per_s * share,
        cores=max(chip.cores * share, 1.0),
        l2_bytes=chip.l2_bytes * share,
    )


def _limiter(parts_s: dict[str, float]) -> Limiter:
    return cast("Limiter", max(parts_s, key=lambda name: parts_s[name]))

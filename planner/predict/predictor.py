"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..frozen import Frozen
from ..offers.aliases import get_chip_name
from ..offers.rows import Accelerator
from ..units import GIGA, MIB, Interval
from ..workload.model import Workload
from .coefficients import AcceleratorLimits, Coefficients, GenerationCoefficients, load_coefficients
from .device.accelerator_limits import compute_limits, find_generation, is_modern_data_center_gpu
from .device.kernel_times import (
    compute_bound_s,
    compute_kernel_parts_s,
    compute_step_s,
    count_dispatches,
    with_software_year,
)
from .device.measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .device.systolic_array import systolic_parts_s
from .execution import Execution, find_keras_execution
from .framework_versions import NEWEST_SOFTWARE
from .interval.adaptive import WIDEST, compute_features
from .interval.quantiles import interval_around
from .interval.time_breakdown import TimeBreakdown, compute_time_breakdown
from .keras_defaults import (
    choose_attention,
    describe_tf32,
    find_execution_precision,
    select_executed_workload,
)
from .kernels.table import KernelTable
from .multi_device.data_parallel import scale_to_devices
from .multi_device.interconnect import UNKNOWN_HOST, HostSpec
from .own_coefficients import OwnCoefficients, load_own_coefficients
from .priors import LAST_YEAR, era_sign
from .run_config import (
    append_mode,
    compute_memory_pressure,
    compute_paging_s,
    name_run_kind,
    name_user_stack,
)
from .step_time import Basis, Limiter, NoPrediction, StepTime, join_notes

if TYPE_CHECKING:
    from ..settings import Settings
    from .parameter_vector import FittedCoefficients

__all__ = [
    "ModelledStep",
    "Predictor",
    "compute_kernel_times_s",
    "compute_step_interval",
    "find_basis",
    "find_limiter",
    "model_step",
]

BITS_PER_BYTE = 8.0
MEAN = ""  # key of the mean over measured members, used for unmeasured ones


class ModelledStep(Frozen):
    """A modelled step and its time by part and kernel.

    Args:
        total_s: The step [s].
        parts_s: What limits it and how much; they add up [s].
        category: Of each kernel, codes into `kernels.CATEGORIES`, array of [kernels].
        kernels_s: What each takes, all its launches together, array of [kernels] [s].
        bound_s: Physical lower bound of the step, see `compute_bound_s` [s].
    """

    total_s: float
    parts_s: dict[str, float]
    category: Any
    kernels_s: Any
    bound_s: float = 0.0

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
        bound_s=compute_bound_s(table, chip),
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
    launch_s = own.launch_s * framework.launch
    return launch_s, *compute_kernel_parts_s(table, chip, own, framework, coefficients.shared, xp=np)


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
    """Predicts step times; caches the results of each workload for further accelerators.

    Args:
        coefficients: Packaged coefficients.
        measured: Packaged measurements.
        own: The user's own coefficients, by the name of the accelerator that they were measured on.
    """

    coefficients: Coefficients
    measured: MeasuredSteps
    own: Mapping[str, OwnCoefficients] = field(default_factory=dict)

    @classmethod
    def load(cls, settings: Settings | None = None) -> Predictor:
        """Return the predictor with the packaged coefficients and measurements.

        Args:
            settings: Settings whose data folder may hold the user's own coefficients; None leaves them out.
        """
        packaged = load_coefficients()
        own = {} if settings is None else load_own_coefficients(settings, packaged)
        return cls(packaged, load_measured_steps(), own)

    def get_coefficients(self, accelerator: Accelerator) -> tuple[Coefficients, str]:
        """Return the coefficients of an accelerator, and a note if they are the user's own."""
        own = self.own.get(accelerator.name)
        return (self.coefficients, "") if own is None else (own.coefficients, own.note)

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
            tables[execution] = execution.build_table(execution.build_kernels(execution.select_ops(workload)))
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
            time_s=interval_around(
                found.step_s, -self.coefficients.measured_log, self.coefficients.measured_log
            ),
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
        precision = find_execution_precision(workload, accelerator)
        chip = compute_limits(accelerator, table=table, precision=precision)
        if isinstance(chip, NoPrediction):
            return chip
        framework = name_user_stack(stack, mode=workload.mode, compiled=workload.compiled)
        coefficients, own_note = self.get_coefficients(accelerator)
        memory_bytes = select_executed_workload(workload, accelerator).memory.total_bytes
        step = model_step(
            table,
            _part_of(chip, share),
            coefficients,
            generation=find_generation(accelerator),
            year=accelerator.year or LAST_YEAR,
            stack=framework,
            host=append_mode(stack, workload.mode),
            compiled=workload.compiled,
            input_bytes=workload.memory.input_bytes if fed else 0.0,
            pressure=compute_memory_pressure(memory_bytes, accelerator, share=share),
            paging_s=compute_paging_s(memory_bytes, accelerator, share=share),
        )
        mode, compiled = workload.mode, workload.compiled
        basis, note = find_basis(accelerator, coefficients, precision=precision, mode=mode, compiled=compiled)
        return StepTime(
            time_s=compute_step_interval(
                step,
                chip,
                accelerator,
                coefficients,
                mode=mode,
                compiled=compiled,
                traffic_s=_compute_variable_traffic_s(workload, accelerator) if share == 1.0 else 0.0,
            ),
            basis=basis,
            limiter=find_limiter(step.parts_s),
            parts_s=step.parts_s,
            note=join_notes(
                describe_tf32(workload, accelerator),
                choose_attention(workload, accelerator).note,
                note,
                own_note,
            ),
        )


def compute_step_interval(
    step: ModelledStep,
    chip: AcceleratorLimits,
    accelerator: Accelerator,
    coefficients: Coefficients,
    *,
    mode: str,
    compiled: bool,
    traffic_s: float = 0.0,
) -> Interval:
    """Return the interval of a modelled step of a user, whose runs no publisher has measured.

    Args:
        step: The step.
        chip: Limits of the accelerator for its kernels.
        accelerator: Row of the catalog.
        coefficients: Fitted coefficients with their intervals.
        mode: `train` or `infer`.
        compiled: Whether it is one program.
        traffic_s: Compulsory traffic at the datasheet's bandwidth, a physical bound [s].
    """
    fitted_on = coefficients.fitted_on
    features = compute_features(
        step.breakdown,
        on_tensor_units=bool(chip.tensor.any()),
        mode=mode,
        compiled=compiled,
        is_chip_measured=get_chip_name(accelerator.name) in fitted_on["chips"],
        is_vendor_measured=accelerator.vendor in fitted_on["vendors"],
    )
    widest = WIDEST if is_modern_data_center_gpu(accelerator) else math.inf
    return coefficients.intervals.compute_interval(
        step.total_s, features, bound_s=max(step.bound_s, traffic_s), widest=widest
    )


def _compute_variable_traffic_s(workload: Workload, accelerator: Accelerator) -> float:
    """Return the time to read and write trainable variables and optimizer state once, beyond the caches [s].

    0 for inference, on TPUs, whose compiler may keep variables on the chip, and where the bandwidth is unknown.
    """
    if workload.mode != "train" or accelerator.kind == "tpu" or not accelerator.memory_gb_per_s:
        return 0.0
    variables = 4.0 * workload.trainable_parameters + workload.memory.optimizer_bytes
    cached = (accelerator.l2_mib or 0.0) * MIB
    return 2.0 * max(0.0, variables - cached) / (accelerator.memory_gb_per_s * GIGA)


def find_basis(
    accelerator: Accelerator, coefficients: Coefficients, *, precision: str, mode: str, compiled: bool
) -> tuple[Basis, str]:
    """Return `modelled` if this kind of run was fitted, else `datasheet` with a note.

    Args:
        accelerator: Row of the catalog.
        coefficients: Fitted coefficients.
        precision: Precision on the accelerator, see `find_execution_precision`.
        mode: `train` or `infer`.
        compiled: Whether it is one program.
    """
    kind = name_run_kind(accelerator.name, precision.removesuffix("_convolutions"), compiled=compiled)
    runs = coefficients.fitted_on["runs"]
    if kind in runs or append_mode(kind, mode) in runs:
        return "modelled", ""
    if accelerator.kind == "tpu":
        return "datasheet", f"no measurement of {kind} was fitted: the datasheet's rates on padded arrays"
    known = find_generation(accelerator) in coefficients.generations
    whose = f"of {accelerator.architecture}" if known else "the mean of all chips"
    return "datasheet", f"no measurement of {kind} was fitted: efficiencies are {whose}"


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


def find_limiter(parts_s: dict[str, float]) -> Limiter:
    """Return the largest part of a step."""
    return cast("Limiter", max(parts_s, key=lambda name: parts_s[name]))

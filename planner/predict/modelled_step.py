"""Modelled time of one step on one device: kernels, host and input; its interval, basis and bottleneck."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..offers.aliases import get_chip_name
from ..offers.rows import Accelerator
from ..records import Frozen
from ..units import GIGA, MIB
from ..workload.model import Workload
from .accelerator_limits import compute_limits, find_generation, find_release_year, is_modern_data_center_gpu
from .coefficients import (
    AcceleratorLimits,
    Coefficients,
    FittedCoefficients,
    GenerationCoefficients,
    SharedCoefficients,
    StackCoefficients,
    era_sign,
    field_names,
)
from .intervals import WIDEST, TimeBreakdown, compute_features, compute_time_breakdown
from .kernel_table import KernelTable
from .kernel_times import compute_bound_s, compute_kernel_parts_s, concatenate_kernels
from .measurements import NEWEST_SOFTWARE
from .roofline import compute_step_s, count_dispatches, with_software_year
from .run_config import append_mode, name_run_kind
from .step_time import Basis, NoPrediction, StepTime, find_limiter
from .systolic_array import SHARES, systolic_parts_s

MEAN = ""  # key of the mean over measured members, used for unmeasured ones
# Gap of a launch, and of each kernel the total, arithmetic and memory time, arrays of [kernels] [s].
KernelTimes = tuple[float, Any, Any, Any]


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


class StepInput(Frozen):
    """Everything that determines the modelled time of a step on one device.

    Args:
        table: Kernels of the step.
        chip: What the accelerator can attain, for these kernels.
        generation, stack, host: Which coefficients apply; those without measurements get the mean.
        year: When the accelerator came out: it says which era a generation is of that was not measured.
        compiled: True: the host launches one program; False: it dispatches every kernel.
        input_bytes: One batch, fed from the host [bytes].
        pressure: Memory needed over memory usable [-].
        paging_s: See `compute_step_s` [s].
        software_year: When the framework was released, with a fraction [years].
        looped: Whether the loop of `fit()` takes the host's time for each step of a program.
    """

    table: KernelTable
    chip: AcceleratorLimits
    generation: str
    year: int
    compiled: bool
    input_bytes: float
    stack: str = MEAN
    host: str = MEAN
    pressure: float = 0.0
    paging_s: float | None = None
    software_year: float = NEWEST_SOFTWARE
    looped: bool = True


def place_step(
    table: KernelTable, accelerator: Accelerator, *, precision: str, **known: Any
) -> StepInput | NoPrediction:
    """Return a step on an accelerator, or the reason if data of the accelerator is missing.

    Args:
        table: Kernels of the step.
        accelerator: Row of the catalog.
        precision: Precision on the accelerator, see `compute_limits`.
        known: Other fields of `StepInput`.
    """
    chip = compute_limits(accelerator, table=table, precision=precision)
    if isinstance(chip, NoPrediction):
        return chip
    year = find_release_year(accelerator)
    return StepInput(table=table, chip=chip, generation=find_generation(accelerator), year=year, **known)


def model_step(
    given: StepInput, coefficients: FittedCoefficients, *, times_s: KernelTimes | None = None
) -> ModelledStep:
    """Return the modelled time of one step on one device.

    Args:
        given: The step.
        coefficients: What was fitted; members that were not get the mean of their group.
        times_s: Times of the kernels, where they are known [s].
    """
    import numpy as np

    shared = coefficients.shared
    table, machine = given.table, coefficients.hosts.get(given.host, coefficients.hosts[MEAN])
    launch_s, total, compute, memory = times_s or compute_kernel_times_s([given], coefficients)[0]
    gaps_s = float(launch_s * table.count.sum())
    busy = total - launch_s * table.count
    compute_s = float(busy[compute >= memory].sum())
    device_s = float(total.sum())
    feed_s = given.input_bytes / machine.feed_bytes_per_s
    whole_s = float(
        compute_step_s(
            device_s=device_s,
            launches=count_dispatches(table, compiled=given.compiled),
            input_bytes=given.input_bytes,
            pressure=given.pressure,
            paging_s=given.paging_s,
            host=machine if given.looped else replace(machine, fixed_s=0.0),
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
        bound_s=compute_bound_s(table, given.chip),
    )


def compute_kernel_times_s(steps: Sequence[StepInput], coefficients: FittedCoefficients) -> list[KernelTimes]:
    """Return the gap of a launch, and of each kernel the total, arithmetic and memory time of several steps [s].

    Args:
        steps: Steps of one stack and software year; those on chips other than TPUs are computed as one table.
        coefficients: What was fitted.
    """
    import numpy as np

    stack, software_year = steps[0].stack, steps[0].software_year
    framework = coefficients.stacks.get(stack, coefficients.stacks[MEAN])
    tiled = [one for one in steps if not one.chip.lanes]
    generations = {
        (name, year): _find_generation(coefficients, name, year=year, software_year=software_year)
        for name, year in {(one.generation, one.year) for one in tiled}
    }
    owns = [generations[one.generation, one.year] for one in tiled]
    launches_s = iter([own.launch_s * framework.launch for own in owns])
    parts_s = iter(_compute_tiled_parts_s(tiled, owns, framework, coefficients.shared) if tiled else ())
    return [
        (0.0, *systolic_parts_s(one.table, one.chip, xp=np))
        if one.chip.lanes
        else (next(launches_s), *next(parts_s))
        for one in steps
    ]


def _compute_tiled_parts_s(
    steps: Sequence[StepInput],
    owns: Sequence[GenerationCoefficients],
    framework: StackCoefficients,
    shared: SharedCoefficients,
) -> list[tuple[Any, Any, Any]]:
    """Return `compute_kernel_parts_s` of several steps, each with the coefficients of its generation [s]."""
    import numpy as np

    if len(steps) == 1:  # coefficients stay numbers
        return [compute_kernel_parts_s(steps[0].table, steps[0].chip, owns[0], framework, shared, xp=np)]
    table, chip, segment = concatenate_kernels([one.table for one in steps], [one.chip for one in steps])
    names = field_names(GenerationCoefficients)
    columns = {name: np.array([getattr(own, name) for own in owns])[segment] for name in names}
    parts_s = compute_kernel_parts_s(table, chip, GenerationCoefficients(**columns), framework, shared, xp=np)
    order = np.argsort(segment, kind="stable")
    ends = np.cumsum([len(one.table.count) for one in steps])[:-1]
    return list(zip(*(np.split(part_s[order], ends) for part_s in parts_s), strict=True))


def _find_generation(
    coefficients: FittedCoefficients, name: str, *, year: int, software_year: float
) -> GenerationCoefficients:
    """Return the coefficients of a generation, fitted or expected, with libraries of a year."""
    import numpy as np

    found = coefficients.generations.get(name) or extrapolate_generation(coefficients, year=year)
    return with_software_year(software_year, found, coefficients.shared, year=year, xp=np)


def extrapolate_generation(coefficients: FittedCoefficients, *, year: int) -> GenerationCoefficients:
    """Return the expected coefficients of an unmeasured generation: mean * exp(gain * era)."""
    mean, era = coefficients.generations[MEAN], era_sign(year)
    return GenerationCoefficients(
        **{name: getattr(mean, name) * math.exp(gain * era) for name, gain in coefficients.era.items()}
    )


def predict_step(
    given: StepInput,
    accelerator: Accelerator,
    coefficients: Coefficients,
    *,
    precision: str,
    mode: str,
    traffic_s: float = 0.0,
    times_s: KernelTimes | None = None,
) -> StepTime:
    """Return the time of a step of a user, whose runs no publisher has measured.

    Args:
        given: The step.
        accelerator: Row of the catalog.
        coefficients: Fitted coefficients with their intervals.
        precision: Precision on the accelerator, see `find_execution_precision`.
        mode: `train` or `infer`.
        traffic_s: Compulsory traffic at the datasheet's bandwidth, a physical bound [s].
        times_s: Times of the kernels, where they are known [s].
    """
    step, fitted_on = model_step(given, coefficients, times_s=times_s), coefficients.fitted_on
    features = compute_features(
        step.breakdown,
        on_tensor_units=bool(given.chip.tensor.any()),
        mode=mode,
        compiled=given.compiled,
        step_s=step.total_s,
        chip_year=given.year,
        software_year=given.software_year,
        is_chip_measured=get_chip_name(accelerator.name) in fitted_on["chips"],
        is_stack_measured=given.stack in fitted_on["stacks"],
        is_vendor_measured=accelerator.vendor in fitted_on["vendors"],
    )
    widest = WIDEST if is_modern_data_center_gpu(accelerator) else math.inf
    bound_s = max(step.bound_s, traffic_s)
    basis, note = find_basis(accelerator, coefficients, precision=precision, mode=mode, compiled=given.compiled)
    return StepTime(
        time_s=coefficients.intervals.compute_interval(step.total_s, features, bound_s=bound_s, widest=widest),
        basis=basis,
        limiter=find_limiter(step.parts_s),
        parts_s=step.parts_s,
        note=note,
    )


def compute_variable_traffic_s(workload: Workload, accelerator: Accelerator) -> float:
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
        share = SHARES.find_products(accelerator.name)
        return (
            "datasheet",
            f"no measurement of {kind} was fitted: products at {share:.0%} of the datasheet's peak",
        )
    known = find_generation(accelerator) in coefficients.generations
    whose = f"of {accelerator.architecture}" if known else "the mean of all chips"
    return "datasheet", f"no measurement of {kind} was fitted: efficiencies are {whose}"

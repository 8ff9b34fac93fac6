"""Modelled time of one step on one device: kernels, host and input."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..frozen import Frozen
from .coefficients import AcceleratorLimits, Coefficients, GenerationCoefficients
from .device.kernel_times import (
    compute_bound_s,
    compute_kernel_parts_s,
    compute_step_s,
    count_dispatches,
    with_software_year,
)
from .device.systolic_array import systolic_parts_s
from .framework_versions import NEWEST_SOFTWARE
from .interval.time_breakdown import TimeBreakdown, compute_time_breakdown
from .kernels.table import KernelTable
from .priors import era_sign

if TYPE_CHECKING:
    from .parameter_vector import FittedCoefficients

__all__ = ["MEAN", "ModelledStep", "compute_kernel_times_s", "extrapolate_generation", "model_step"]

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

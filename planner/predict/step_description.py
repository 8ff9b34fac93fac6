"""Interval, basis and bottleneck of a modelled step."""

from __future__ import annotations

import math
from typing import cast

from ..offers.aliases import get_chip_name
from ..offers.rows import Accelerator
from ..units import GIGA, MIB, Interval
from ..workload.model import Workload
from .coefficients import AcceleratorLimits, Coefficients
from .device.accelerator_limits import find_generation, find_release_year, is_modern_data_center_gpu
from .device.systolic_array import SHARES
from .framework_versions import NEWEST_SOFTWARE
from .interval.adaptive import WIDEST, compute_features
from .modelled_step import ModelledStep
from .run_config import append_mode, name_run_kind
from .step_time import Basis, Limiter


def compute_step_interval(
    step: ModelledStep,
    chip: AcceleratorLimits,
    accelerator: Accelerator,
    coefficients: Coefficients,
    *,
    mode: str,
    compiled: bool,
    traffic_s: float = 0.0,
    software_year: float = NEWEST_SOFTWARE,
) -> Interval:
    """Return the interval of a modelled step of a user, whose runs no publisher has measured.

    Args:
        step: The step.
        chip: Limits of the accelerator for its kernels.
        accelerator: Row of the catalog.
        coefficients: Fitted coefficients with their intervals.
        mode: `train` or `infer`.
        compiled: Whether it is one program.
        software_year: When the framework was released [years].
        traffic_s: Compulsory traffic at the datasheet's bandwidth, a physical bound [s].
    """
    fitted_on = coefficients.fitted_on
    features = compute_features(
        step.breakdown,
        on_tensor_units=bool(chip.tensor.any()),
        mode=mode,
        compiled=compiled,
        step_s=step.total_s,
        chip_year=find_release_year(accelerator),
        software_year=software_year,
        is_chip_measured=get_chip_name(accelerator.name) in fitted_on["chips"],
        is_vendor_measured=accelerator.vendor in fitted_on["vendors"],
    )
    widest = WIDEST if is_modern_data_center_gpu(accelerator) else math.inf
    return coefficients.intervals.compute_interval(
        step.total_s, features, bound_s=max(step.bound_s, traffic_s), widest=widest
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


def find_limiter(parts_s: dict[str, float]) -> Limiter:
    """Return the largest part of a step."""
    return cast("Limiter", max(parts_s, key=lambda name: parts_s[name]))

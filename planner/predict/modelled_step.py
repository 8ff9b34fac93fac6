"""Modelled time of one step on one device: kernels, host and input; its interval, basis and bottleneck."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..offers.aliases import get_chip_name
from ..offers.rows import Accelerator
from ..records import Frozen
from ..units import GIGA, MIB
from ..workload.model import Workload
from .accelerator_limits import find_generation, find_limits, find_release_year, is_modern_data_center_gpu
from .coefficients import AcceleratorLimits, Coefficients, FittedCoefficients, GenerationCoefficients, era_sign
from .intervals import WIDEST, TimeBreakdown, compute_features, compute_time_breakdowns
from .kernel_table import LAYOUT, KernelTable
from .kernel_times import compute_bound_s, compute_kernel_parts_s, compute_launch_s
from .measurements import NEWEST_SOFTWARE
from .roofline import compute_starved_s, compute_step_s, select_rows, with_software_year
from .run_config import append_mode, name_run_kind
from .step_time import Basis, NoPrediction, StepTime, find_limiter, join_notes
from .systolic_array import USUAL_PRODUCT_SHARE, systolic_parts_s

T = TypeVar("T", bound=Frozen)
KEPT_BYTES = 8 * 2**20  # more than all arrays of a step [bytes]
MEAN = ""  # key of the mean over measured members, used for unmeasured ones


class ModelledStep(Frozen):
    """A modelled step and its time by part and kernel."""

    total_s: float  # the step [s]
    parts_s: dict[str, float]  # what limits it and how much; they add up [s]
    breakdown: TimeBreakdown
    bound_s: float  # physical lower bound of the step, see `compute_bound_s` [s]


class StepInput(Frozen):
    """Everything that determines the modelled time of a step on one device."""

    table: KernelTable  # kernels of the step
    limits: AcceleratorLimits  # what the accelerator can attain, for each of `table.operands`
    # generation, stack, host: which coefficients apply; those without measurements get the mean
    generation: str
    year: int  # when the accelerator came out: it says which era a generation is of that was not measured
    compiled: bool  # True: the host launches one program; False: it dispatches every kernel
    input_bytes: float  # one batch, fed from the host [bytes]
    stack: str = MEAN
    host: str = MEAN
    pressure: float = 0.0  # memory needed over memory usable [-]
    paging_s: float | None = None  # see `compute_step_s` [s]
    software_year: float = NEWEST_SOFTWARE  # when the framework was released, with a fraction [years]
    looped: bool = True  # whether the loop of `fit()` takes the host's time for each step of a program
    is_ahead: bool = False  # whether the host prepares a batch while the device computes

    @property
    def chip(self) -> AcceleratorLimits:
        """Attainable rates of the accelerator for each kernel."""
        return select_rows(self.limits, self.table.operand)


def place_step(
    table: KernelTable, accelerator: Accelerator, *, precision: str, **known: Any
) -> StepInput | NoPrediction:
    """Return a step on an accelerator with other fields of `StepInput`, or the reason if data is missing."""
    limits = find_limits(accelerator, table.operands, precision=precision)
    if isinstance(limits, NoPrediction):
        return limits
    year = find_release_year(accelerator)
    return StepInput(table=table, limits=limits, generation=find_generation(accelerator), year=year, **known)


def model_step(given: StepInput, coefficients: FittedCoefficients) -> ModelledStep:
    """Return the modelled time of one step on one device; see `model_steps`."""
    return model_steps([given], coefficients)[0]


def model_steps(steps: Sequence[StepInput], coefficients: FittedCoefficients) -> list[ModelledStep]:
    """Return the modelled time of each step on one device; those with equal kernels are computed together.

    Members of a group of coefficients that were not fitted get its mean.
    """
    import numpy as np

    np.empty(KEPT_BYTES, np.uint8)  # freed at once: glibc then keeps the memory of arrays up to this size
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(steps):
        how = (one.stack, one.software_year, one.compiled, one.is_ahead, bool(one.limits.lanes))
        groups.setdefault((id(one.table.category), *how), []).append(place)
    found: dict[int, ModelledStep] = {}
    for places in groups.values():
        found |= zip(places, _model_alike([steps[place] for place in places], coefficients), strict=True)
    return [found[place] for place in range(len(steps))]


def _model_alike(steps: Sequence[StepInput], coefficients: FittedCoefficients) -> Iterator[ModelledStep]:
    """Yield the modelled time of each of some steps with equal kernels on different chips."""
    import numpy as np

    table = steps[0].table
    chip = select_rows(stack_records([one.limits for one in steps]), table.operand)
    hosts = [coefficients.hosts.get(one.host, coefficients.hosts[MEAN]) for one in steps]
    looped = zip(hosts, steps, strict=True)
    host = stack_records([one if step.looped else replace(one, fixed_s=0.0) for one, step in looped])
    launch_s, total, compute, memory = compute_kernel_times_s(steps, chip, coefficients)
    given = [(one.input_bytes, one.pressure, math.inf if one.paging_s is None else one.paging_s) for one in steps]
    input_bytes, pressure, paging_s = np.array(given, float).T[..., None]
    gaps = launch_s * table.count
    busy = np.where(compute >= memory, total - gaps, 0.0)
    device_s, gaps_s, compute_s = (times.sum(axis=1, keepdims=True) for times in (total, gaps, busy))
    feed_s = input_bytes / host.feed_bytes_per_s
    launches = 1.0 if steps[0].compiled else table.dispatched
    whole_s = compute_step_s(
        device_s=device_s,
        launches=launches,
        input_bytes=input_bytes,
        pressure=pressure,
        paging_s=paging_s,
        host=host,
        shared=coefficients.shared,
        xp=np,
        is_ahead=steps[0].is_ahead,
    )
    if steps[0].is_ahead:  # the input's share of what the host adds to the device's time
        host_s = launches * host.dispatch_s + host.fixed_s + feed_s
        starved = {"pressure": pressure, "shared": coefficients.shared, "paging_s": paging_s}
        feed_s = feed_s / host_s * (whole_s - compute_starved_s(device_s, **starved, xp=np))
    names = ("compute", "memory bandwidth", "launch", "input")
    parts = (compute_s, device_s - gaps_s - compute_s, gaps_s + whole_s - device_s - feed_s, feed_s)
    breakdowns = compute_time_breakdowns(table.category, total, whole_s[:, 0])
    bounds_s = compute_bound_s(table, chip).tolist()
    rows = zip(np.hstack([whole_s, *parts]).tolist(), breakdowns, bounds_s, strict=True)
    for (total_s, *parts_s), breakdown, bound_s in rows:
        named_s = dict(zip(names, parts_s, strict=True))
        yield ModelledStep(total_s=total_s, parts_s=named_s, breakdown=breakdown, bound_s=bound_s)


def compute_kernel_times_s(
    steps: Sequence[StepInput], chip: AcceleratorLimits, coefficients: FittedCoefficients
) -> tuple[Any, Any, Any, Any]:
    """Return the gap before a launch, and total, arithmetic and memory time [steps, kernels] [s].

    Args:
        steps: Steps of equal kernels, of one stack and software year, on different chips, either TPUs or others.
    """
    import numpy as np

    table, stack, software_year = steps[0].table, steps[0].stack, steps[0].software_year
    if any(one.table is not table for one in steps):
        layouts: dict[str, Any] = {name: np.array([vars(one.table)[name] for one in steps]) for name in LAYOUT}
        table = replace(table, **layouts)
    if steps[0].limits.lanes:
        return np.zeros((len(steps), 1)), *systolic_parts_s(table, chip, xp=np)
    framework, known = coefficients.stacks.get(stack, coefficients.stacks[MEAN]), coefficients.generations
    generations = [
        known.get(one.generation) or extrapolate_generation(coefficients, year=one.year) for one in steps
    ]
    year = np.array([one.year for one in steps])[:, None]
    shared = coefficients.shared
    own = with_software_year(software_year, stack_records(generations), shared, year=year, xp=np)
    times = compute_kernel_parts_s(table, chip, own, framework, shared, xp=np)
    return compute_launch_s(table, own, framework, xp=np), *times


def stack_records(rows: Sequence[T]) -> T:
    """Return several records as one of arrays of [records, 1], or [records, kernels] where a value is an array."""
    import numpy as np

    found: dict[str, Any] = {}
    for name, values in zip(vars(rows[0]), zip(*(vars(row).values() for row in rows), strict=True), strict=True):
        kinds = set(map(type, values))
        same = values if len(kinds) == 1 or np.ndarray not in kinds else np.broadcast_arrays(*values)
        found[name] = np.array(same).reshape(len(rows), -1)
    return type(rows[0])(**found)


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
    step: ModelledStep | None = None,
    notes: Sequence[str] = (),
) -> StepTime:
    """Return the time of a step of a user, whose runs no publisher has measured.

    Args:
        traffic_s: Compulsory traffic at the datasheet's bandwidth, a physical bound [s].
        notes: On how it is executed; empty ones are left out.
    """
    step, fitted_on = step or model_step(given, coefficients), coefficients.fitted_on
    features = compute_features(
        step.breakdown,
        on_tensor_units=bool(given.limits.tensor.any()),
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
        note=join_notes(*notes, note),
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
    """Return `modelled` if this kind of run was fitted, else `datasheet` with a note."""
    kind = name_run_kind(accelerator.name, precision.removesuffix("_convolutions"), compiled=compiled)
    runs = coefficients.fitted_on["runs"]
    if kind in runs or append_mode(kind, mode) in runs:
        return "modelled", ""
    if accelerator.kind == "tpu":
        share = accelerator.matmul_share or USUAL_PRODUCT_SHARE
        return (
            "datasheet",
            f"no measurement of {kind} was fitted: products at {share:.0%} of the datasheet's peak",
        )
    generation = find_generation(accelerator)
    known = generation in coefficients.generations
    whose = f"of {generation.partition('-')[0]}" if known else "the mean of all chips"
    return "datasheet", f"no measurement of {kind} was fitted: efficiencies are {whose}"

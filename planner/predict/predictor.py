"""Step time of a workload on an accelerator, by the best basis there is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..frozen import Frozen
from ..offers.rows import Accelerator
from ..workload.model import Workload
from .coefficients import Chip, Coefficients, Generation, load_coefficients
from .device.accelerator_limits import chip_of, generation_of
from .device.kernel_times import device_parts_s, launches_of, step_s, with_libraries_of
from .device.measured_lookup import Measured, fingerprint, load_measured
from .device.systolic_array import systolic_parts_s
from .framework_versions import NEWEST_SOFTWARE
from .interval.inference import inference_ends_of
from .interval.quantiles import around
from .interval.similarity import Makeup, makeup_of
from .kernels.executed_ops import COPIES, updated_on_each_core
from .kernels.table import KernelTable, kernels_of, table_of
from .multi_device.data_parallel import several_devices
from .multi_device.interconnect import UNKNOWN, Machine
from .priors import LAST_YEAR, datasheet_of, era_of, kin_of
from .run_config import converted_by_keras, keras_library, kind_of_run, mode_of, pressure_of
from .step_time import Basis, Limiter, StepTime, Unpredicted

if TYPE_CHECKING:
    from .parameter_vector import Fitted

__all__ = ["ModelledStep", "Predictor", "kernel_times_s", "model_step"]

BITS_PER_BYTE = 8.0
MEAN = ""  # of what was measured: what stands for everything that was not


class ModelledStep(Frozen):
    """A modelled step and where its time goes.

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
    def makeup(self) -> Makeup:
        """What the step consists of; worked out when asked for, since an estimate never does."""
        return makeup_of(self.category, self.kernels_s, step_s=self.total_s)


def model_step(
    table: KernelTable, chip: Chip, coefficients: Fitted | Coefficients, *, generation: str,
    year: int, compiled: bool, input_bytes: float, pressure: float = 0.0, stack: str = MEAN, host: str = MEAN,
    software_year: float = NEWEST_SOFTWARE,
) -> ModelledStep:  # fmt: skip
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
        software_year: When the framework was released [years].
    """
    import numpy as np

    shared = coefficients.shared
    machine = coefficients.hosts.get(host, coefficients.hosts[MEAN])
    launch_s, total, compute, memory = kernel_times_s(
        table, chip, coefficients, generation=generation, year=year, stack=stack, software_year=software_year
    )
    gaps_s = float(launch_s * table.count.sum())
    busy = total - launch_s * table.count
    compute_s = float(busy[compute >= memory].sum())
    device_s = float(total.sum())
    feed_s = input_bytes / machine.feed_bytes_per_s
    whole_s = float(
        step_s(
            device_s=device_s, launches=launches_of(table, compiled=compiled), input_bytes=input_bytes,
            pressure=pressure, host=machine, shared=shared, xp=np,
        )
    )  # fmt: skip
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


def kernel_times_s(
    table: KernelTable, chip: Chip, coefficients: Fitted | Coefficients, *, generation: str, year: int,
    stack: str = MEAN, software_year: float = NEWEST_SOFTWARE,
) -> tuple[float, Any, Any, Any]:  # fmt: skip
    """Return the gap of a launch, and of each kernel the total, arithmetic and memory time [s].

    See `model_step` for the arguments.
    """
    import numpy as np

    if chip.lanes:
        return 0.0, *systolic_parts_s(table, chip, xp=np)
    own = coefficients.generations.get(generation) or unmeasured(coefficients, year=year)
    framework = coefficients.stacks.get(stack, coefficients.stacks[MEAN])
    framework = with_libraries_of(software_year, framework, coefficients.shared, xp=np)
    return own.launch_s, *device_parts_s(table, chip, own, framework, coefficients.shared, xp=np)


def unmeasured(coefficients: Fitted | Coefficients, *, year: int) -> Generation:
    """Return what is expected of a generation of that year that was never measured."""
    mean, era = coefficients.generations[MEAN], era_of(year)
    return Generation(
        **{name: getattr(mean, name) * math.exp(gain * era) for name, gain in coefficients.era.items()}
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What was worked out of a workload (kept alive, so that its id stays its own)."""

    workload: Workload
    # by what a library runs, copies of the weights, and the types of convolutions that are converted
    tables: dict[tuple[frozenset[str], int, frozenset[str]], KernelTable]
    fingerprint: str
    # by id of the accelerator, share of it, stack, feed; with the accelerator, so that its id stays its own
    steps: dict[tuple[int, float, str, bool], tuple[Accelerator, StepTime | Unpredicted]]


@dataclass(frozen=True)
class Predictor:
    """Predicts steps; keeps what it worked out of a workload for the next accelerator."""

    coefficients: Coefficients
    measured: Measured

    @classmethod
    def load(cls) -> Predictor:
        """Return the predictor of the packaged coefficients and measurements."""
        return cls(load_coefficients(), load_measured())

    @cached_property
    def _known(self) -> dict[int, _Known]:
        return {}

    def _work(self, workload: Workload) -> _Known:
        if id(workload) not in self._known:
            kernels = kernels_of(workload.ops, compiled=workload.compiled)
            tables = {(frozenset[str](), 1, frozenset[str]()): table_of(kernels)}
            self._known[id(workload)] = _Known(workload, tables, fingerprint(workload, kernels), {})
        return self._known[id(workload)]

    def kernel_table(self, workload: Workload, accelerator: Accelerator) -> KernelTable:
        """Return the kernels of a workload's step on an accelerator, built once for all that run the same."""
        tables = self._work(workload).tables
        library = keras_library(accelerator, keras=workload.versions["keras"], compiled=workload.compiled)
        library &= {op.loop.layer for op in workload.ops if op.loop is not None}  # others change nothing
        compiled = workload.compiled
        converted = converted_by_keras(accelerator, precision=workload.precision, compiled=compiled)
        key = (library, COPIES.get(accelerator.name, 1), converted)
        if key not in tables:
            ops = updated_on_each_core(workload.ops, accelerator.name)
            kernels = kernels_of(ops, compiled=compiled, library=library)
            tables[key] = table_of(kernels, converted=converted)
        return tables[key]

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, look_up: bool = True,
        stack: str = "keras", fed: bool = True, machine: Machine = UNKNOWN, hosts: int = 1,
    ) -> StepTime | Unpredicted:  # fmt: skip
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
            if isinstance(modelled, Unpredicted):
                return modelled
            single = modelled
        if devices <= 1:
            return single
        return several_devices(
            single, gradient_bytes=workload.memory.gradient_bytes, accelerator=accelerator, devices=devices,
            machine=machine, hosts=hosts,
        )  # fmt: skip

    def _measured(self, workload: Workload, accelerator: Accelerator) -> StepTime | None:
        found = self.measured.find(self._work(workload).fingerprint, accelerator.name)
        if found is None:
            return None
        modelled = self._modelled(workload, accelerator, share=1.0, stack="keras", fed=True)
        if isinstance(modelled, Unpredicted):
            return None
        scale = found.step_s / modelled.time_s.mid
        return StepTime(
            time_s=around(found.step_s, *self.coefficients.intervals["measured"]["keras"]), basis="measured",
            limiter=modelled.limiter, note=f"measured: {found.source}",
            parts_s={name: part * scale for name, part in modelled.parts_s.items()},
        )  # fmt: skip

    def _modelled(
        self, workload: Workload, accelerator: Accelerator, *, share: float, stack: str, fed: bool
    ) -> StepTime | Unpredicted:
        """Return the modelled step of one device, worked out once however many devices are asked for."""
        steps, key = self._work(workload).steps, (id(accelerator), share, stack, fed)
        if key not in steps:
            found = self._worked_out(workload, accelerator, share=share, stack=stack, fed=fed)
            steps[key] = (accelerator, found)
        return steps[key][1]

    def _worked_out(
        self, workload: Workload, accelerator: Accelerator, *, share: float, stack: str, fed: bool
    ) -> StepTime | Unpredicted:
        table = self.kernel_table(workload, accelerator)
        chip = chip_of(accelerator, table=table, precision=workload.precision)
        if isinstance(chip, Unpredicted):
            return chip
        ours = mode_of(stack, workload.mode)
        step = model_step(
            table, _part_of(chip, share), self.coefficients, generation=generation_of(accelerator),
            year=accelerator.year or LAST_YEAR, stack=ours, host=ours, compiled=workload.compiled,
            input_bytes=workload.memory.input_bytes if fed else 0.0,
            pressure=pressure_of(workload.memory.total_bytes, accelerator, share=share),
        )  # fmt: skip
        basis, note = self._basis(workload, accelerator)
        return StepTime(
            time_s=around(step.total_s, *self._ends(workload, basis, stack, accelerator)), basis=basis,
            limiter=_limiter(step.parts_s), parts_s=step.parts_s, note=note,
        )  # fmt: skip

    def _ends(
        self, workload: Workload, basis: Basis, stack: str, accelerator: Accelerator
    ) -> tuple[float, float]:  # fmt: skip
        """Return by how much a time may be off, as log ratios."""
        filed = datasheet_of(_kin_of(accelerator)) if basis == "datasheet" else basis
        ends = self.coefficients.intervals[filed][stack]
        if workload.mode == "infer":
            return inference_ends_of(ends, basis, stack)
        return ends

    def _basis(self, workload: Workload, accelerator: Accelerator) -> tuple[Basis, str]:
        """Return `modelled` where the fit has rows of this chip at this precision and way of running."""
        kind = kind_of_run(accelerator.name, workload.precision, compiled=workload.compiled)
        runs = self.coefficients.fitted_on["runs"]
        if kind in runs or mode_of(kind, workload.mode) in runs:
            return "modelled", ""
        if accelerator.kind == "tpu":
            return "datasheet", f"no measurement of {kind} was fitted: the datasheet's rates on padded arrays"
        known = generation_of(accelerator) in self.coefficients.generations
        whose = f"of {accelerator.architecture}" if known else "the mean of all chips"
        return "datasheet", f"no measurement of {kind} was fitted: efficiencies are {whose}"


def _kin_of(accelerator: Accelerator) -> str:
    """Return which measured chips an accelerator is one of; empty for none, as a TPU is."""
    return kin_of(accelerator.year) if accelerator.kind == "gpu" and accelerator.year else ""


def _part_of(chip: Chip, share: float) -> Chip:
    if share >= 1.0:
        return chip
    return replace(
        chip, peak_flop_per_s=chip.peak_flop_per_s * share, vector_flop_per_s=chip.vector_flop_per_s * share,
        memory_bytes_per_s=chip.memory_bytes_per_s * share, cores=max(chip.cores * share, 1.0),
        l2_bytes=chip.l2_bytes * share,
    )  # fmt: skip


def _limiter(parts_s: dict[str, float]) -> Limiter:
    return cast("Limiter", max(parts_s, key=lambda name: parts_s[name]))

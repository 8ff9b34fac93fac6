"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..offers.rows import Accelerator
from ..workload.model import Workload
from ..workload.ops import Op
from .coefficients import AcceleratorLimits, Coefficients
from .device.accelerator_limits import compute_limits, find_generation, find_release_year
from .device.measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .execution import Execution, find_keras_execution
from .interval.adaptive import interval_around
from .keras_defaults import (
    choose_attention,
    describe_composed_normalization,
    describe_float8,
    describe_tf32,
    describe_torch_host,
    describe_unaligned_products,
    find_execution_precision,
    select_executed_workload,
)
from .keras_torch_host import load_user_coefficients
from .kernels.table import Kernel, KernelTable
from .modelled_step import KernelTimes, StepOnChip, compute_all_kernel_times_s, model_step
from .multi_device.data_parallel import scale_to_devices
from .multi_device.interconnect import UNKNOWN_HOST, HostSpec
from .run_config import (
    compute_memory_pressure,
    compute_paging_s,
    name_user_run,
)
from .step_description import (
    compute_step_interval,
    compute_variable_traffic_s,
    find_basis,
    find_limiter,
)
from .step_time import NoPrediction, StepTime, join_notes
from .xla_recomputation import compute_recomputed_bytes

BITS_PER_BYTE = 8.0
MEAN = ""  # key of the mean over measured members, used for unmeasured ones
_StepKey = tuple[int, int, float, str, bool]  # workload, accelerator, share of it, stack, feed


@dataclass(frozen=True)
class Predictor:
    """Predicts step times; caches the results of each workload for further accelerators.

    Args:
        coefficients: Packaged coefficients.
        measured: Packaged measurements.
        accelerators: Those whose kernel times are computed together, once a workload is predicted on one of them.
    """

    coefficients: Coefficients
    measured: MeasuredSteps
    accelerators: tuple[Accelerator, ...] = ()

    @classmethod
    def load(cls, *, accelerators: Iterable[Accelerator] = ()) -> Predictor:
        """Return the predictor with the packaged coefficients and measurements.

        Args:
            accelerators: Accelerators on which each workload will be predicted.
        """
        return cls(load_user_coefficients(), load_measured_steps(), tuple(accelerators))

    # Results by id of what they belong to, which is kept beside them, so that the id stays unique.

    @cached_property
    def _kernels(self) -> dict[tuple[int, Execution], tuple[Sequence[Op], tuple[Kernel, ...]]]:
        return {}

    @cached_property
    def _tables(self) -> dict[tuple[int, Execution], tuple[Sequence[Op], KernelTable]]:
        return {}

    @cached_property
    def _fingerprints(self) -> dict[int, tuple[Workload, str]]:
        return {}

    @cached_property
    def _steps(self) -> dict[_StepKey, tuple[Workload, Accelerator, StepTime | NoPrediction]]:
        return {}

    @cached_property
    def _limits(self) -> dict[tuple[int, int], tuple[Workload, Accelerator, StepOnChip | NoPrediction]]:
        return {}

    @cached_property
    def _times_s(self) -> dict[tuple[int, int, str], tuple[Workload, Accelerator, KernelTimes]]:
        return {}

    def _build_kernels(self, ops: Sequence[Op], execution: Execution) -> tuple[Kernel, ...]:
        key = (id(ops), execution.of_kernels)
        if key not in self._kernels:
            self._kernels[key] = (ops, execution.build_kernels(ops))
        return self._kernels[key][1]

    def _compute_fingerprint(self, workload: Workload) -> str:
        if id(workload) not in self._fingerprints:
            kernels = self._build_kernels(workload.ops, Execution(compiled=workload.compiled))
            self._fingerprints[id(workload)] = (workload, compute_fingerprint(workload, kernels))
        return self._fingerprints[id(workload)][1]

    def kernel_table(self, workload: Workload, accelerator: Accelerator) -> KernelTable:
        """Return the kernel table of a step; accelerators with equal execution share one table."""
        execution = find_keras_execution(workload, accelerator)
        ops = execution.select_ops(workload)
        key = (id(ops), execution)
        if key not in self._tables:
            self._tables[key] = (ops, execution.build_table(self._build_kernels(ops, execution)))
        return self._tables[key][1]

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
        if accelerator.name not in self.measured.accelerators:
            return None
        found = self.measured.find(self._compute_fingerprint(workload), accelerator.name)
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
        key = (id(workload), id(accelerator), share, stack, fed)
        if key not in self._steps:
            found = self._worked_out(workload, accelerator, share=share, stack=stack, fed=fed)
            self._steps[key] = (workload, accelerator, found)
        return self._steps[key][2]

    def _worked_out(
        self, workload: Workload, accelerator: Accelerator, *, share: float, stack: str, fed: bool
    ) -> StepTime | NoPrediction:
        found = self._compute_limits(workload, accelerator)
        if isinstance(found, NoPrediction):
            return found
        precision = find_execution_precision(workload, accelerator)
        names = name_user_run(
            stack, torch=workload.backend == "torch", mode=workload.mode, compiled=workload.compiled
        )
        coefficients = self.coefficients
        executed = select_executed_workload(workload, accelerator)
        memory_bytes = executed.memory.total_bytes - compute_recomputed_bytes(executed, accelerator)
        step = model_step(
            found.table,
            _part_of(found.chip, share),
            coefficients,
            generation=found.generation,
            year=found.year,
            stack=names.stack,
            host=names.host,
            compiled=workload.compiled,
            input_bytes=workload.memory.input_bytes if fed else 0.0,
            pressure=compute_memory_pressure(memory_bytes, accelerator, share=share),
            paging_s=compute_paging_s(memory_bytes, accelerator, share=share),
            times_s=self._compute_times_s(workload, accelerator, names.stack) if share == 1.0 else None,
        )
        mode, compiled = workload.mode, workload.compiled
        if workload.quantization is not None:
            precision = f"{workload.quantization}_from_{precision}"
        basis, note = find_basis(accelerator, coefficients, precision=precision, mode=mode, compiled=compiled)
        return StepTime(
            time_s=compute_step_interval(
                step,
                found.chip,
                accelerator,
                coefficients,
                mode=mode,
                compiled=compiled,
                traffic_s=compute_variable_traffic_s(workload, accelerator) if share == 1.0 else 0.0,
            ),
            basis=basis,
            limiter=find_limiter(step.parts_s),
            parts_s=step.parts_s,
            note=join_notes(
                describe_tf32(workload, accelerator),
                describe_float8(workload),
                describe_composed_normalization(workload),
                describe_torch_host(workload),
                describe_unaligned_products(workload, accelerator),
                choose_attention(workload, accelerator).note,
                note,
            ),
        )

    def _compute_limits(self, workload: Workload, accelerator: Accelerator) -> StepOnChip | NoPrediction:
        key = (id(workload), id(accelerator))
        if key not in self._limits:
            table = self.kernel_table(workload, accelerator)
            precision = find_execution_precision(workload, accelerator)
            chip = compute_limits(accelerator, table=table, precision=precision)
            found: StepOnChip | NoPrediction
            if isinstance(chip, NoPrediction):
                found = chip
            else:
                year = find_release_year(accelerator)
                found = StepOnChip(table, chip, find_generation(accelerator), year)
            self._limits[key] = (workload, accelerator, found)
        return self._limits[key][2]

    def _compute_times_s(self, workload: Workload, accelerator: Accelerator, stack: str) -> KernelTimes:
        """Return the times of a step's kernels; those on the accelerators of this predictor are computed together.

        Many small arrays take longer than a few large ones.
        """
        key = (id(workload), id(accelerator), stack)
        if key not in self._times_s:
            peers = self.accelerators
            if not any(one is accelerator for one in peers):
                peers = (accelerator,)
            limits = ((one, self._compute_limits(workload, one)) for one in peers)
            known = [(one, found) for one, found in limits if not isinstance(found, NoPrediction)]
            steps = [found for _, found in known]
            times_s = compute_all_kernel_times_s(steps, self.coefficients, stack=stack)
            for (one, _), found_s in zip(known, times_s, strict=True):
                self._times_s[id(workload), id(one), stack] = (workload, one, found_s)
        return self._times_s[key][2]


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

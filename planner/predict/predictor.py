"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from ..offers.rows import Accelerator
from ..workload.model import Workload
from ..workload.ops import Op
from .accelerator_limits import compute_limits, find_generation, find_release_year
from .coefficients import AcceleratorLimits, Coefficients
from .data_parallel import scale_to_devices
from .executed_ops import Execution, find_keras_execution
from .interconnect import UNKNOWN_HOST, HostSpec
from .intervals import interval_around
from .keras_defaults import (
    choose_attention,
    describe_composed_normalization,
    describe_float8,
    describe_tf32,
    describe_torch_host,
    describe_unaligned_products,
    find_execution_precision,
    load_user_coefficients,
    select_executed_workload,
)
from .kernel_table import Kernel, KernelTable
from .measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .modelled_step import (
    KernelTimes,
    StepOnChip,
    compute_all_kernel_times_s,
    compute_step_interval,
    compute_variable_traffic_s,
    find_basis,
    find_limiter,
    model_step,
)
from .run_config import compute_memory_pressure, compute_paging_s, name_user_run
from .step_time import NoPrediction, StepTime, join_notes
from .xla_recomputation import compute_recomputed_bytes

BITS_PER_BYTE = 8.0
T = TypeVar("T")


@dataclass(frozen=True)
class Predictor:
    """Predicts step times; caches the results of each workload for further accelerators.

    Args:
        coefficients: Packaged coefficients.
        measured: Packaged measurements.
        peers: By number of devices, accelerators whose kernel times are computed together, once a workload is
            predicted on so many of one of them.
    """

    coefficients: Coefficients
    measured: MeasuredSteps
    peers: Mapping[float, Sequence[Accelerator]] = field(default_factory=dict)

    @classmethod
    def load(cls, *, peers: Mapping[float, Sequence[Accelerator]] | None = None) -> Predictor:
        """Return the predictor with the packaged coefficients and measurements.

        Args:
            peers: By number of devices, the accelerators on which workloads will be predicted.
        """
        return cls(load_user_coefficients(), load_measured_steps(), peers or {})

    @cached_property
    def _kept(self) -> dict[tuple[Any, ...], tuple[tuple[object, ...], Any]]:
        return {}

    def _keep(self, what: str, *owners: object, by: tuple[object, ...] = (), compute: Callable[[], T]) -> T:
        """Return a result that is computed once for the same objects."""
        key = (what, *map(id, owners), *by)
        if key not in self._kept:
            self._kept[key] = (owners, compute())
        return cast("T", self._kept[key][1])

    def _build_kernels(self, ops: Sequence[Op], execution: Execution) -> tuple[Kernel, ...]:
        return self._keep("kernels", ops, by=(execution.of_kernels,), compute=lambda: execution.build_kernels(ops))

    def _compute_fingerprint(self, workload: Workload) -> str:
        def compute() -> str:
            kernels = self._build_kernels(workload.ops, Execution(compiled=workload.compiled))
            return compute_fingerprint(workload, kernels)

        return self._keep("fingerprint", workload, compute=compute)

    def kernel_table(self, workload: Workload, accelerator: Accelerator) -> KernelTable:
        """Return the kernel table of a step; accelerators with equal execution share one table."""
        execution = find_keras_execution(workload, accelerator)
        ops = execution.select_ops(workload)
        return self._keep(
            "table",
            ops,
            by=(execution,),
            compute=lambda: execution.build_table(self._build_kernels(ops, execution)),
        )

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        look_up: bool = True,
        stack: str = "keras",
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
            machine: How the devices of a host are joined.
            hosts: Machines that hold the devices between them.
        """
        single = self._measured(workload, accelerator) if look_up and devices >= 1 else None
        if single is None:
            modelled = self._modelled(workload, accelerator, devices, stack=stack)
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
        modelled = self._modelled(workload, accelerator, 1.0, stack="keras")
        if isinstance(modelled, NoPrediction):
            return None
        scale = found.step_s / modelled.time_s.mid
        return StepTime(
            time_s=interval_around(found.step_s, -self.coefficients.measured_log, self.coefficients.measured_log),
            basis="measured",
            limiter=modelled.limiter,
            note=f"measured: {found.source}",
            parts_s={name: part * scale for name, part in modelled.parts_s.items()},
        )

    def _modelled(
        self, workload: Workload, accelerator: Accelerator, devices: float, *, stack: str
    ) -> StepTime | NoPrediction:
        """Return the modelled step of one device; cached for all numbers of devices."""
        return self._keep(
            "step",
            workload,
            accelerator,
            by=(min(devices, 1.0), stack),
            compute=lambda: self._worked_out(workload, accelerator, devices, stack=stack),
        )

    def _worked_out(
        self, workload: Workload, accelerator: Accelerator, devices: float, *, stack: str
    ) -> StepTime | NoPrediction:
        share = min(devices, 1.0)
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
            input_bytes=workload.memory.input_bytes,
            pressure=compute_memory_pressure(memory_bytes, accelerator, share=share),
            paging_s=compute_paging_s(memory_bytes, accelerator, share=share),
            times_s=self._compute_times_s(workload, accelerator, devices, names.stack) if share == 1.0 else None,
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
        def compute() -> StepOnChip | NoPrediction:
            table = self.kernel_table(workload, accelerator)
            precision = find_execution_precision(workload, accelerator)
            chip = compute_limits(accelerator, table=table, precision=precision)
            if isinstance(chip, NoPrediction):
                return chip
            return StepOnChip(table, chip, find_generation(accelerator), find_release_year(accelerator))

        return self._keep("limits", workload, accelerator, compute=compute)

    def _compute_times_s(
        self, workload: Workload, accelerator: Accelerator, devices: float, stack: str
    ) -> KernelTimes:
        """Return the times of a step's kernels, computed together with those on as many devices of other kinds.

        Many small arrays take longer than a few large ones.
        """
        peers = self.peers.get(devices, ())
        if not any(one is accelerator for one in peers):
            peers = (accelerator,)

        def compute() -> dict[int, KernelTimes]:
            limits = ((id(one), self._compute_limits(workload, one)) for one in peers)
            known = {one: found for one, found in limits if not isinstance(found, NoPrediction)}
            times_s = compute_all_kernel_times_s([*known.values()], self.coefficients, stack=stack)
            return dict(zip(known, times_s, strict=True))

        return self._keep("times", workload, *peers, by=(stack,), compute=compute)[id(accelerator)]


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

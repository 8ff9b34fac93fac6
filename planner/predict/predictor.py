"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from ..offers.rows import Accelerator
from ..workload.model import Workload
from ..workload.ops import Op
from .coefficients import AcceleratorLimits, Coefficients, load_coefficients
from .data_parallel import scale_to_devices
from .executed_ops import Execution, find_keras_execution
from .interconnect import UNKNOWN_HOST, HostSpec
from .intervals import interval_around
from .keras_defaults import find_execution_precision, list_execution_notes, select_executed_workload
from .kernel_table import Kernel, KernelTable
from .measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .modelled_step import (
    KernelTimes,
    StepInput,
    compute_kernel_times_s,
    compute_variable_traffic_s,
    place_step,
    predict_step,
)
from .run_config import compute_memory_pressure, compute_paging_s, name_user_run
from .step_time import NoPrediction, StepTime, join_notes
from .xla_recomputation import compute_recomputed_bytes

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
        return cls(load_coefficients(), load_measured_steps(), peers or {})

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
            compute=lambda: self._model_step(workload, accelerator, devices, stack=stack),
        )

    def _model_step(
        self, workload: Workload, accelerator: Accelerator, devices: float, *, stack: str
    ) -> StepTime | NoPrediction:
        share = min(devices, 1.0)
        given = self._build_input(workload, accelerator, stack)
        if isinstance(given, NoPrediction):
            return given
        precision = find_execution_precision(workload, accelerator)
        if workload.quantization is not None:
            precision = f"{workload.quantization}_from_{precision}"
        executed = select_executed_workload(workload, accelerator)
        memory_bytes = executed.memory.total_bytes - compute_recomputed_bytes(executed, accelerator)
        step = predict_step(
            replace(
                given,
                chip=_part_of(given.chip, share),
                pressure=compute_memory_pressure(memory_bytes, accelerator, share=share),
                paging_s=compute_paging_s(memory_bytes, accelerator, share=share),
            ),
            accelerator,
            self.coefficients,
            precision=precision,
            mode=workload.mode,
            traffic_s=compute_variable_traffic_s(workload, accelerator) if share == 1.0 else 0.0,
            times_s=self._compute_times_s(workload, accelerator, devices, stack) if share == 1.0 else None,
        )
        return replace(step, note=join_notes(*list_execution_notes(workload, accelerator), step.note))

    def _build_input(self, workload: Workload, accelerator: Accelerator, stack: str) -> StepInput | NoPrediction:
        def compute() -> StepInput | NoPrediction:
            mode, compiled = workload.mode, workload.compiled
            name, host = name_user_run(stack, torch=workload.backend == "torch", mode=mode, compiled=compiled)
            return place_step(
                self.kernel_table(workload, accelerator),
                accelerator,
                precision=find_execution_precision(workload, accelerator),
                compiled=compiled,
                input_bytes=workload.memory.input_bytes,
                stack=name,
                host=host,
            )

        return self._keep("input", workload, accelerator, by=(stack,), compute=compute)

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
            inputs = ((id(one), self._build_input(workload, one, stack)) for one in peers)
            known = {one: given for one, given in inputs if not isinstance(given, NoPrediction)}
            return dict(zip(known, compute_kernel_times_s([*known.values()], self.coefficients), strict=True))

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

"""Step time of a workload on an accelerator, by the best available basis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from ..offers.rows import Accelerator
from ..workload.model import Workload
from ..workload.ops import Op
from .coefficients import Coefficients, load_coefficients
from .collectives import list_gradient_sums, scale_to_devices
from .executed_ops import Execution, find_keras_execution
from .interconnect import UNKNOWN_HOST, HostSpec
from .intervals import interval_around
from .keras_defaults import copies_ahead, find_execution_precision, list_execution_notes, select_executed_workload
from .kernel_table import Kernel, KernelTable, is_grouped
from .measured_lookup import MeasuredSteps, compute_fingerprint, load_measured_steps
from .modelled_step import (
    ModelledStep,
    StepInput,
    compute_variable_traffic_s,
    model_steps,
    place_step,
    predict_step,
)
from .run_config import compute_memory_pressure, compute_paging_s, name_user_run
from .step_time import NoPrediction, StepTime
from .xla_recomputation import compute_recomputed_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class Predictor:
    """Predicts step times; caches the results of each workload for further accelerators."""

    coefficients: Coefficients
    measured: MeasuredSteps
    # by number of devices, accelerators whose kernel times are computed together, once a workload is predicted on
    # so many of one of them
    peers: Mapping[float, Sequence[Accelerator]] = field(default_factory=dict)

    @classmethod
    def load(cls, *, peers: Mapping[float, Sequence[Accelerator]] | None = None) -> Predictor:
        """Return the predictor with the packaged coefficients and measurements."""
        return cls(load_coefficients(), load_measured_steps(), peers or {})

    @cached_property
    def _kept(self) -> dict[tuple[Any, ...], tuple[tuple[object, ...], Any]]:
        return {}

    def _keep(self, what: str, *owners: object, by: tuple[object, ...] = (), compute: Callable[[], T]) -> T:
        """Return a result that is computed once for the same objects."""
        key = (what, *map(id, owners), *by)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = (owners, compute())
        return cast("T", found[1])

    def _build_kernels(self, ops: Sequence[Op], execution: Execution) -> tuple[Kernel, ...]:
        given = execution.of_kernels
        return self._keep("kernels", ops, by=(given,), compute=lambda: given.build_kernels(ops))

    def kernel_table(self, workload: Workload, accelerator: Accelerator) -> KernelTable:
        """Return the kernel table of a step; equal tables are one object, of which chips are modelled together."""
        execution = find_keras_execution(workload, accelerator)
        ops = execution.select_ops(workload)

        def compute() -> KernelTable:
            kernels = self._build_kernels(ops, execution)
            grouped = self._keep("grouped", kernels, compute=lambda: any(map(is_grouped, kernels)))
            by = (execution.fast_groups if grouped else "all", execution.cpu_backend)
            rows = self._keep("rows", kernels, by=by, compute=lambda: execution.build_table(kernels))
            table = rows.lay_out(execution.converted, execution.attention_kernel)
            return self._keep("equal tables", by=table.contents, compute=lambda: table)

        return self._keep("table", ops, by=(execution,), compute=compute)

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
            devices: How many; a fraction is that share of one device's cores, rates and bandwidth.
            look_up: Whether a measurement of the same work may be used.
            stack: `keras`, `eager` (PyTorch) or `tuned` (a vendor's container).
        """
        single = self._measured(workload, accelerator) if look_up and devices >= 1 else None
        if single is None:
            modelled = self._modelled(workload, accelerator, devices, stack=stack)
            if isinstance(modelled, NoPrediction):
                return modelled
            single = modelled
        if devices <= 1:
            return single
        sums = list_gradient_sums(workload.memory.gradient_bytes, devices=devices)
        return scale_to_devices(single, sums, accelerator, devices=devices, machine=machine, hosts=hosts)

    def _measured(self, workload: Workload, accelerator: Accelerator) -> StepTime | None:
        if accelerator.name not in self.measured.accelerators:
            return None
        plain = Execution(compiled=workload.compiled)
        work = self._keep(
            "fingerprint",
            workload,
            compute=lambda: compute_fingerprint(workload, self._build_kernels(workload.ops, plain)),
        )
        found = self.measured.find(work, accelerator.name)
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
        given = self._build_input(workload, accelerator, stack, min(devices, 1.0))
        if isinstance(given, NoPrediction):
            return given
        precision = find_execution_precision(workload, accelerator)
        if workload.quantization is not None:
            precision = f"{workload.quantization}_from_{precision}"
        return predict_step(
            given,
            accelerator,
            self.coefficients,
            precision=precision,
            mode=workload.mode,
            traffic_s=compute_variable_traffic_s(workload, accelerator) if devices >= 1.0 else 0.0,
            step=self._model_peers(workload, devices, stack).get(id(accelerator)),
            notes=list_execution_notes(workload, accelerator),
        )

    def _build_input(
        self, workload: Workload, accelerator: Accelerator, stack: str, share: float
    ) -> StepInput | NoPrediction:
        def compute() -> StepInput | NoPrediction:
            mode, compiled = workload.mode, workload.compiled
            name, host = name_user_run(stack, torch=workload.backend == "torch", mode=mode, compiled=compiled)
            executed = select_executed_workload(workload, accelerator)
            memory_bytes = executed.memory.total_bytes - compute_recomputed_bytes(executed, accelerator)
            given = place_step(
                self.kernel_table(workload, accelerator),
                accelerator,
                precision=find_execution_precision(workload, accelerator),
                compiled=compiled,
                input_bytes=workload.memory.input_bytes,
                stack=name,
                host=host,
                pressure=compute_memory_pressure(memory_bytes, accelerator, share=share),
                paging_s=compute_paging_s(memory_bytes, accelerator, share=share),
                is_ahead=copies_ahead(workload, accelerator),
            )
            if share == 1.0 or isinstance(given, NoPrediction):
                return given
            # of a share of the device
            rates = ("peak_flop_per_s", "vector_flop_per_s", "memory_bytes_per_s", "l2_bytes")
            part = {name: getattr(given.limits, name) * share for name in rates}
            return replace(given, limits=replace(given.limits, **part, cores=max(given.limits.cores * share, 1.0)))

        return self._keep("input", workload, accelerator, by=(stack, share), compute=compute)

    def _model_peers(self, workload: Workload, devices: float, stack: str) -> dict[int, ModelledStep]:
        """Return the step of one device of each peer, by identity; small arrays take longer than large ones."""

        def compute() -> dict[int, ModelledStep]:
            peers = self.peers.get(devices, ())
            inputs = ((id(one), self._build_input(workload, one, stack, min(devices, 1.0))) for one in peers)
            known = {one: given for one, given in inputs if not isinstance(given, NoPrediction)}
            return dict(zip(known, model_steps([*known.values()], self.coefficients), strict=True))

        return self._keep("steps", workload, by=(devices, stack), compute=compute)

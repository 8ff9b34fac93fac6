"""Measurement of canonical workloads on the present device, as run by `gpuplan benchmark`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from ..errors import GpuplanError
from ..profile_schema import ProfileDocument
from ..workload.options import WorkloadOptions
from .benchmark_rows import Row, build_row, find_attention
from .benchmark_suite import BenchmarkWorkload, Configured, configure_suite
from .device_probe import probe_device
from .document import find_accelerator_name
from .profile_request import ProfileRequest
from .run import profile
from .statistics import ProcessLimits
from .windows import MeasurementRules

if TYPE_CHECKING:
    from ..offers.rows import Accelerator

LEAST_S = 20.0  # below this no workload is started
MOST_SHARES = 3.0  # of the time that is left for each workload, the most that one may take [-]
WINDOWS_SHARE = 0.2  # of a workload's time for warm-up, and for windows; the rest starts and compiles [-]
LEAST_WINDOWS_S, MOST_WINDOWS_S = 0.5, 10.0
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRequest:
    """Request for a benchmark.

    Args:
        workloads: What to measure, in order.
        backend: Keras backend.
        device: Device to compute on; None for the backend's default.
        minutes: Time limit for all workloads together [min].
    """

    workloads: Sequence[BenchmarkWorkload]
    backend: str
    device: Literal["cpu", "gpu", "tpu"] | None = None
    minutes: float = 10.0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A workload that was not measured, and why."""

    name: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Benchmark:
    """Result of a benchmark so far.

    Args:
        backend: Keras backend.
        device: Device as the backend describes it.
        accelerator: Name of the device in the catalog; None if it is not there.
        created_at: Start, ISO 8601.
        status: `interrupted` unless everything was tried.
        environment: Environment of the first measurement; None without one.
        names: Names of the measured workloads.
        rows: Their rows, in the same order.
        skipped: What was not measured.
    """

    backend: str
    device: dict[str, Any]
    accelerator: str | None
    created_at: str
    status: Literal["complete", "interrupted"] = "interrupted"
    environment: dict[str, Any] | None = None
    names: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, in the form of `schemas/gpuplan.benchmark.json`."""
        from .._version import __version__

        return {
            "gpuplan_version": __version__,
            "created_at": self.created_at,
            "status": self.status,
            "backend": self.backend,
            "device": self.device,
            "accelerator": self.accelerator,
            "environment": self.environment,
            "rows": [{"workload": name, **row} for name, row in zip(self.names, self.rows, strict=True)],
            "skipped": [{"workload": one.name, "reason": one.reason} for one in self.skipped],
        }


def run_benchmark(
    request: BenchmarkRequest,
    *,
    begun: Callable[[Benchmark], None] = lambda found: None,
    tell: Tell = lambda name, done, total: None,
    keep: Callable[[Benchmark], None] = lambda found: None,
) -> Benchmark:
    """Measure workloads one after the other until all are measured or the time is over.

    Args:
        request: Request for a benchmark.
        begun: Callback with the result without rows, once the device is known.
        tell: Callback with the workload that is begun, the number of those before it and of all.
        keep: Callback with the result after each measured workload.

    Raises:
        UsageError, GpuplanError: The backend does not start, or its device cannot be measured.
        KeyboardInterrupt: The user interrupted; what was measured was passed to `keep`.
    """
    end_s = time.monotonic() + 60.0 * request.minutes
    device = probe_device(request.backend, request.device)
    name = find_accelerator_name(device)
    accelerator = _find_accelerator(name)
    found = Benchmark(
        backend=request.backend,
        device=device,
        accelerator=name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    _require_whole_chip(name)
    begun(found)
    has_tf32 = accelerator is not None and accelerator.tf32_tensor_tflop_per_s is not None
    configured = configure_suite(request.workloads, device["platform"], has_tf32=has_tf32)
    for done, one in enumerate(configured):
        tell(one.workload.name, done, len(configured))
        left_s = end_s - time.monotonic()
        if left_s < LEAST_S:
            found.skipped.append(Skipped(one.workload.name, "no time was left for it"))
            continue
        limit_s = min(left_s, max(LEAST_S, MOST_SHARES * left_s / (len(configured) - done)))
        document = _measure(one, request, found, limit_s=limit_s)
        if document is not None:
            _add(found, one, document, accelerator)
            keep(found)
    found.status = "complete"
    return found


def _measure(
    one: Configured, request: BenchmarkRequest, found: Benchmark, *, limit_s: float
) -> ProfileDocument | None:
    """Measure a workload in one process; None with an entry in `skipped` if that failed."""
    windows_s = min(max(WINDOWS_SHARE * limit_s / MOST_SHARES, LEAST_WINDOWS_S), MOST_WINDOWS_S)
    asked = ProfileRequest(
        model=one.model,
        batch_sizes=(one.batch_size,),
        precisions=(one.precision,),
        backend=request.backend,
        device=request.device,
        options=WorkloadOptions(mode=one.workload.mode),
        rules=MeasurementRules.for_each_process(processes=1, together_s=windows_s),
        several=ProcessLimits(fewest=1, most=1),
        trace=False,
        brief=True,
        limit_s=limit_s,
    )
    try:
        document = profile(asked)
    except GpuplanError as error:
        found.skipped.append(Skipped(one.workload.name, str(error)))
        return None
    row = document["rows"][0]
    if row["status"] == "measured" and row["fit"] is not None and row["fit"]["median_s"] is not None:
        return document
    reason = "it does not fit in the memory" if row["status"] == "out_of_memory" else row["message"]
    found.skipped.append(Skipped(one.workload.name, reason or row["status"]))
    return None


def _add(
    found: Benchmark, one: Configured, document: ProfileDocument, accelerator: Accelerator | None
) -> None:
    """Add the row of a measured workload."""
    attention = find_attention(one, backend=found.backend, accelerator=accelerator)
    found.environment = found.environment or document["environment"]
    found.names.append(one.workload.name)
    found.rows.append(
        build_row(
            one,
            document,
            accelerator=found.accelerator or str(found.device["name"]),
            attention=attention,
            today=datetime.now(UTC).date(),
        )
    )


def _find_accelerator(name: str | None) -> Accelerator | None:
    """Return the catalog's row of a device; None if there is none."""
    if name is None:
        return None
    from ..offers.catalog import load_catalog, resolve_accelerator

    return resolve_accelerator(load_catalog(), name)


def _require_whole_chip(name: str | None) -> None:
    """Raise GpuplanError for a TPU chip of several cores, of which Keras uses one."""
    from ..predict.kernels.executed_ops import CORES_PER_CHIP

    cores = CORES_PER_CHIP.get(name or "", 1)
    if cores > 1:
        raise GpuplanError(
            f"a {name} has {cores} cores, and Keras uses one of them: its steps are not those of the chip",
            hint="measure a run on all of them with `gpuplan.StepTimer`",
        )

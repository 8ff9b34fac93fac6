"""Measurement of canonical workloads on the present device, as run by `gpuplan benchmark`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import GpuplanError
from ..profile_schema import ProfileDocument
from ..workload.options import WorkloadOptions
from .benchmark_suite import BenchmarkWorkload, Configured, build_row, configure_suite
from .document import find_accelerator_name
from .measuring_process import probe_device
from .request import Device, ProfileRequest
from .run import profile
from .statistics import ProcessLimits
from .windows import MeasurementRules

LEAST_S = 20.0  # below this no workload is started
MOST_SHARES = 3.0  # of the time that is left for each workload, the most that one may take [-]
WINDOWS_SHARE = 0.2  # of a workload's time for warm-up, and for windows; the rest starts and compiles [-]
LEAST_WINDOWS_S, MOST_WINDOWS_S = 0.5, 10.0
Tell = Callable[[str, int, int], None]
BenchmarkDocument = dict[str, Any]  # in the form of `schemas/gpuplan.benchmark.json`


def run_benchmark(
    workloads: Sequence[BenchmarkWorkload], backend: str, device: Device | None, *, minutes: float, tell: Tell
) -> Iterator[BenchmarkDocument]:
    """Measure workloads one after the other until all are measured or the time is over.

    Yields the same document again and again: without rows, once the device is known, then after each measured
    workload, and at the end. Its status is `interrupted` until everything was tried.

    Args:
        workloads: What to measure, in order.
        backend: Keras backend.
        device: Device to compute on; None for the backend's default.
        minutes: Time limit for all workloads together [min].
        tell: Callback with the workload that is begun, the number of those before it and of all.

    Raises:
        UsageError, GpuplanError: The backend does not start, or its device cannot be measured.
    """
    from .._version import __version__
    from ..offers.catalog import load_catalog, resolve_accelerator

    end_s = time.monotonic() + 60.0 * minutes
    facts = probe_device(backend, device)
    name = find_accelerator_name(facts)
    accelerator = None if name is None else resolve_accelerator(load_catalog(), name)
    _require_whole_chip(name)
    found: BenchmarkDocument = {
        "gpuplan_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "interrupted",
        "backend": backend,
        "device": facts,
        "accelerator": name,
        "environment": None,
        "rows": [],
        "skipped": [],
    }
    yield found
    has_tf32 = accelerator is not None and accelerator.tf32_tensor_tflop_per_s is not None
    configured = configure_suite(workloads, facts["platform"], has_tf32=has_tf32)
    for done, one in enumerate(configured):
        tell(one.workload.name, done, len(configured))
        try:
            document = _measure(one, backend, device, end_s=end_s, left=len(configured) - done)
        except GpuplanError as error:
            found["skipped"].append({"workload": one.workload.name, "reason": str(error)})
            continue
        found["environment"] = found["environment"] or document["environment"]
        found["rows"].append(build_row(one, document, device=name or str(facts["name"]), accelerator=accelerator))
        yield found
    found["status"] = "complete"
    yield found


def _measure(one: Configured, backend: str, device: Device | None, *, end_s: float, left: int) -> ProfileDocument:
    """Measure one of the workloads that are left, in one process; GpuplanError says why it was not measured."""
    left_s = end_s - time.monotonic()
    if left_s < LEAST_S:
        raise GpuplanError("no time was left for it")
    limit_s = min(left_s, max(LEAST_S, MOST_SHARES * left_s / left))
    windows_s = min(max(WINDOWS_SHARE * limit_s / MOST_SHARES, LEAST_WINDOWS_S), MOST_WINDOWS_S)
    document = profile(
        ProfileRequest(
            model=one.model,
            batch_sizes=(one.batch_size,),
            precisions=(one.precision,),
            backend=backend,
            device=device,
            options=WorkloadOptions(mode=one.workload.mode),
            rules=MeasurementRules.for_each_process(processes=1, together_s=windows_s),
            several=ProcessLimits(fewest=1, most=1),
            brief=True,
            limit_s=limit_s,
        )
    )
    row = document["rows"][0]
    if row["status"] != "measured" or row["fit"] is None or row["fit"]["median_s"] is None:
        reason = "it does not fit in the memory" if row["status"] == "out_of_memory" else row["message"]
        raise GpuplanError(reason or row["status"])
    return document


def _require_whole_chip(name: str | None) -> None:
    """Raise GpuplanError for a TPU chip of several cores, of which Keras uses one."""
    from ..predict.executed_ops import CORES_PER_CHIP

    cores = CORES_PER_CHIP.get(name or "", 1)
    if cores > 1:
        raise GpuplanError(
            f"a {name} has {cores} cores, and Keras uses one of them: its steps are not those of the chip",
            hint="measure a run on all of them with `gpuplan.StepTimer`",
        )

"""Samples from measurements: every measured workload is built and traced once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

from gpuplan.errors import UsageError, near_names_hint
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.predict.executed_ops import Execution, find_measured_execution
from gpuplan.predict.kernel_table import KernelTable
from gpuplan.predict.library_kernels import is_fused_by_chip
from gpuplan.predict.measured_run import TracedRun, build_fit_sample, build_traced_run, load_measured_workload
from gpuplan.predict.measurements import OWN, Measurement, load_published_measurements, read_measurements
from gpuplan.predict.step_time import NoPrediction
from gpuplan.workload.model import Workload

from .cross_validation import LabelledSample
from .kernel_store import build_run_key, load_store

Key = tuple[Path, str, int, str, str, bool]
Progress = Callable[[str], None]


def _key(m: Measurement) -> Key:
    return (m.base, m.model, m.batch_size, m.mode, m.precision, m.compiled)


def trace_workloads(measurements: Sequence[Measurement], *, progress: Progress) -> dict[Key, Workload]:
    """Build and trace every distinct workload among the measurements, as many at a time as there are cores.

    Each is traced in a separate child process; the threads only wait for them.
    """
    distinct = {_key(m): m for m in measurements}

    def trace(done: int, measurement: Measurement) -> Workload:
        progress(f"{measurement.model} ({done + 1} of {len(distinct)})")
        return load_measured_workload(measurement)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        try:
            return dict(zip(distinct, pool.map(trace, range(len(distinct)), distinct.values()), strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def trace_measured_rows(
    measurements: Sequence[Measurement], *, progress: Progress
) -> Callable[[Measurement], Workload]:
    """Trace measurements, and return a function that gives the workload of each."""
    traced = trace_workloads(measurements, progress=progress)
    return lambda m: traced[_key(m)]


def trace_runs(
    measurements: Sequence[Measurement], *, progress: Progress, known: Mapping[str, TracedRun] | None = None
) -> dict[str, TracedRun]:
    """Return the traces of measured runs by `build_run_key`; unknown runs are traced.

    Args:
        measurements: What was run.
        progress: Is told what is being traced.
        known: Earlier traces; None: those that are packaged.
    """
    known = load_store() if known is None else dict(known)
    missing = [m for m in measurements if build_run_key(m) not in known]
    workloads = trace_workloads(missing, progress=progress)
    chips = load_catalog().accelerators
    return known | {
        build_run_key(m): build_traced_run(
            m, workloads[_key(m)], chips[m.accelerator] if is_fused_by_chip(m) else None
        )
        for m in missing
    }


def build_samples(
    measurements: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    progress: Progress,
    known: Mapping[str, TracedRun] | None = None,
) -> list[LabelledSample]:
    """Return measurements on one device as examples to fit or to be judged on.

    Args:
        measurements: What was run.
        accelerators: The catalog's, by name.
        progress: Is told what is being traced.
        known: Traces by `build_run_key`; None: those that are packaged.

    Raises:
        UsageError: An accelerator is not in the catalog, or lacks the numbers that a prediction needs.
    """
    traces = trace_runs(measurements, progress=progress, known=known)
    tables: dict[tuple[str, Execution], KernelTable] = {}
    samples = []
    for m in measurements:
        accelerator, traced = _find_accelerator(m, accelerators), traces[build_run_key(m)]
        execution = find_measured_execution(m, accelerator)
        key = (build_run_key(m), execution)
        if key not in tables:
            tables[key] = execution.build_table(traced.kernels)
        fit_sample = build_fit_sample(m, traced, accelerator, table=tables[key])
        if isinstance(fit_sample, NoPrediction):
            raise UsageError(f"cannot judge {m.model} on {accelerator.name}: {fit_sample.reason}")
        samples.append(LabelledSample(measurement=m, fit_sample=fit_sample))
    return samples


def _find_accelerator(m: Measurement, accelerators: Mapping[str, Accelerator]) -> Accelerator:
    accelerator = accelerators.get(m.accelerator)
    if accelerator is None:
        raise UsageError(
            f"unknown accelerator `{m.accelerator}` in measurements of {m.model}",
            hint=near_names_hint(m.accelerator, accelerators, see_all="gpuplan accelerators"),
        )
    return accelerator


def load_corpus() -> tuple[Measurement, ...]:
    """Return the published measurements, and the steps of Keras 3 that were timed for this project."""
    return (*load_published_measurements(), *load_own_measurements())


def load_own_measurements() -> tuple[Measurement, ...]:
    """Return the steps of Keras 3 that were timed for this project, with the time of each step alone."""
    return read_measurements(Path(str(resources.files("gpuplan.profiles"))) / "measured" / f"{OWN}.csv")


def read_published_file(name: str) -> tuple[Measurement, ...]:
    """Return the rows of one published file.

    Example:
        >>> len(read_published_file("profet_keras_aws"))
        849
    """
    return read_measurements(Path(str(resources.files("gpuplan.profiles.published"))) / f"{name}.csv")

"""From measurements to examples: building and tracing every measured workload once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import UsageError, near_names_hint
from ..offers.rows import Accelerator
from ..predict.device.accelerator_limits import chip_of, generation_of
from ..predict.framework_versions import software_year
from ..predict.kernels.table import KernelTable, table_of
from ..predict.measurements import Measurement
from ..predict.priors import LAST_YEAR
from ..predict.run_config import converted_dtypes, host_of, is_fed_from_host, pressure_of, stack_of
from ..predict.step_time import Unpredicted
from ..workload.load import load_workload
from ..workload.model import Workload
from ..workload.options import WorkloadOptions
from .cross_validation import Example
from .fit import Case
from .kernel_store import Traced, load_store, run_key, trace_of

__all__ = ["examples_of", "traces_of", "workload_of", "workloads_of"]

Key = tuple[Path, str, int, str, str, bool]
Progress = Callable[[str], None]


def _key(m: Measurement) -> Key:
    return (m.base, m.model, m.batch_size, m.mode, m.precision, m.compiled)


def workload_of(measurement: Measurement) -> Workload:
    """Build and trace what was measured (from the cache when it was traced before)."""
    options = WorkloadOptions(
        batch_size=measurement.batch_size, precision=measurement.precision, mode=measurement.mode,
        compiled=measurement.compiled,
    )  # fmt: skip
    return load_workload(measurement.model, options=options, base=measurement.base)


def workloads_of(measurements: Sequence[Measurement], *, progress: Progress) -> dict[Key, Workload]:
    """Build and trace every distinct workload among the measurements, as many at a time as there are cores.

    Each is traced in a child process of its own; the threads here only wait for them.
    """
    distinct = {_key(m): m for m in measurements}

    def trace(done: int, measurement: Measurement) -> Workload:
        progress(f"{measurement.model} ({done + 1} of {len(distinct)})")
        return workload_of(measurement)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        try:
            return dict(zip(distinct, pool.map(trace, range(len(distinct)), distinct.values()), strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def traces_of(
    measurements: Sequence[Measurement], *, progress: Progress, known: Mapping[str, Traced] | None = None
) -> dict[str, Traced]:
    """Return what the measured runs launch, by `run_key`: traced where it is not known.

    Args:
        measurements: What was run.
        progress: Is told what is being traced.
        known: Earlier traces; None: those that are packaged.
    """
    known = load_store() if known is None else dict(known)
    missing = [m for m in measurements if run_key(m) not in known]
    workloads = workloads_of(missing, progress=progress)
    return known | {run_key(m): trace_of(m, workloads[_key(m)]) for m in missing}


def examples_of(
    measurements: Sequence[Measurement], accelerators: Mapping[str, Accelerator], *, progress: Progress,
    known: Mapping[str, Traced] | None = None,
) -> list[Example]:  # fmt: skip
    """Return measurements on one device as examples to fit or to be judged on.

    Args:
        measurements: What was run.
        accelerators: The catalog's, by name.
        progress: Is told what is being traced.
        known: Traces by `run_key`; None: those that are packaged.

    Raises:
        UsageError: An accelerator is not in the catalog, or lacks the numbers that a prediction needs.
    """
    traces = traces_of(measurements, progress=progress, known=known)
    tables: dict[tuple[str, frozenset[str]], KernelTable] = {}
    examples = []
    for m in measurements:
        accelerator, traced = _accelerator_of(m, accelerators), traces[run_key(m)]
        converted = converted_dtypes(m, accelerator)
        key = (run_key(m), converted)
        if key not in tables:
            tables[key] = table_of(traced.kernels, converted=converted)
        examples.append(_example(m, traced, tables[key], accelerator))
    return examples


def _accelerator_of(m: Measurement, accelerators: Mapping[str, Accelerator]) -> Accelerator:
    accelerator = accelerators.get(m.accelerator)
    if accelerator is None:
        raise UsageError(
            f"unknown accelerator `{m.accelerator}` in measurements of {m.model}",
            hint=near_names_hint(m.accelerator, accelerators, see_all="gpuplan accelerators"),
        )
    return accelerator


def _example(m: Measurement, traced: Traced, table: KernelTable, accelerator: Accelerator) -> Example:
    chip = chip_of(accelerator, table=table, precision=m.precision)
    if isinstance(chip, Unpredicted):
        raise UsageError(f"cannot judge {m.model} on {accelerator.name}: {chip.reason}")
    case = Case(
        table=table, chip=chip, generation=generation_of(accelerator), stack=stack_of(m), host=host_of(m),
        year=accelerator.year or LAST_YEAR,
        compiled=m.compiled, input_bytes=traced.input_bytes if is_fed_from_host(m) else 0,
        pressure=pressure_of(traced.memory_bytes, accelerator), step_s=m.step_s,
        software_year=software_year(m.software),
    )  # fmt: skip
    return Example(measurement=m, case=case)

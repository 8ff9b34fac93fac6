"""From measurements to examples: building and tracing every measured workload once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import UsageError, near_names_hint
from ..offers.rows import Accelerator
from ..workload.load import load_workload
from ..workload.model import Workload
from ..workload.options import WorkloadOptions
from .chip import chip_of, generation_of
from .corpus import Measurement
from .fit import Case
from .heldout import Example
from .kernels import kernels_of, table_of
from .runs import host_of, input_bytes_of, ops_as_run, pressure_of, stack_of
from .steptime import Unpredicted

__all__ = ["examples_of", "workload_of", "workloads_of"]

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


def examples_of(
    measurements: Sequence[Measurement], accelerators: Mapping[str, Accelerator], *, progress: Progress
) -> list[Example]:
    """Return single-device training measurements as examples to fit or to be judged on.

    Raises:
        UsageError: An accelerator is not in the catalog, or lacks the numbers that a prediction needs.
    """
    workloads = workloads_of(measurements, progress=progress)
    return [_example(m, workloads[_key(m)], accelerators) for m in measurements]


def _example(m: Measurement, workload: Workload, accelerators: Mapping[str, Accelerator]) -> Example:
    accelerator = accelerators.get(m.accelerator)
    if accelerator is None:
        raise UsageError(
            f"unknown accelerator `{m.accelerator}` in measurements of {m.model}",
            hint=near_names_hint(m.accelerator, accelerators, see_all="gpuplan accelerators"),
        )
    table = table_of(kernels_of(ops_as_run(m, workload), compiled=m.compiled))
    chip = chip_of(accelerator, table=table, precision=m.precision)
    if isinstance(chip, Unpredicted):
        raise UsageError(f"cannot judge {m.model} on {accelerator.name}: {chip.reason}")
    case = Case(
        table=table, chip=chip, generation=generation_of(accelerator), stack=stack_of(m), host=host_of(m),
        compiled=m.compiled, input_bytes=input_bytes_of(m, workload),
        pressure=pressure_of(workload.memory, accelerator), step_s=m.step_s,
    )  # fmt: skip
    return Example(measurement=m, case=case)

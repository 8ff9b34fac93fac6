"""Rounds of measuring processes: they compile together, and have the device one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.profile.measuring_process import MeasuringProcess, ProcessResult
from gpuplan.units import GIB
from gpuplan.workload.options import ScriptOptions

MEASURE_RESERVE_S = 4.0  # of the time, kept for each process that gets ready [s]
GIB_EACH, MOST_TOGETHER = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """Limits of each process: time to build and compile [s], time with the device [s], resident memory [bytes]."""

    prepare_s: float = 180.0
    measure_s: float = 60.0
    host_bytes: int = 32 * GIB


def run_round(
    requests: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    limits: RoundLimits,
    stop_at_s: float,
    on_event: Callable[[int, dict[str, Any]], None] = lambda place, message: None,
) -> Iterator[tuple[int, ProcessResult]]:
    """Yield the place of each request and its result, as soon as it is known; a process that fails ends alone.

    Args:
        requests: Modules (`CHILD` for a Keras model) and what each is asked.
        limits: Limits of each process.
        stop_at_s: Time at which everything has ended, on the monotonic clock [s].
        on_event: Callback for every message, with the place of the request.
    """
    prepare_s = min(limits.prepare_s, stop_at_s - time.monotonic() - MEASURE_RESERVE_S * len(requests))
    processes: list[MeasuringProcess] = []
    pool = ThreadPoolExecutor(len(requests))
    try:
        for place, (module, request) in enumerate(requests):
            asked, tell = {**request, "wait": True}, partial(on_event, place)
            process = MeasuringProcess(
                asked, tell, ScriptOptions(), limit_s=prepare_s, host_bytes=limits.host_bytes, module=module
            )
            processes.append(process)
        list(pool.map(lambda one: _run(one, until="prepared"), processes))
        for place, process in enumerate(processes):
            if process.result.message is None:
                process.start(limit_s=min(limits.measure_s, max(stop_at_s - time.monotonic(), 1.0)))
                _run(process, until="done")
            process.stop()
            yield place, process.result
    finally:
        for process in processes:
            process.stop()
        pool.shutdown()


def _run(process: MeasuringProcess, *, until: str) -> None:
    """Run until a message; an error of the user's code becomes the result of the process."""
    try:
        process.run(until=until)
    except GpuplanError as error:
        process.result.status, process.result.message = "failed", str(error)


def count_together(platform: str, cores: int, device_bytes: int | None) -> int:
    """Return the number of parallel compilations: two cores and 16 GiB of a GPU for each, at most eight.

    Example:
        >>> count_together("gpu", 16, 141 * 10**9), count_together("gpu", 4, 16 * GIB)
        (8, 1)
    """
    if platform != "gpu" or device_bytes is None:
        return 1
    return max(1, min(cores // 2, device_bytes // (GIB_EACH * GIB), MOST_TOGETHER))

"""Rounds of measuring processes: several build and compile at the same time, then each has the device to itself.

A process that dies, hangs or takes too much memory ends alone, with the reason in its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..errors import GpuplanError
from ..units import GIB
from ..workload.options import ScriptOptions
from .measuring_process import MeasuringProcess, ProcessResult

MEASURE_RESERVE_S = 4.0  # of the time, kept for each process that gets ready [s]
CHILD = f"{__package__}.child"
OnEvent = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """Limits of each process of a round.

    Args:
        prepare_s: Time to import, build and compile [s].
        measure_s: Time with the device [s].
        host_bytes: Resident memory [bytes].
    """

    prepare_s: float = 180.0
    measure_s: float = 60.0
    host_bytes: int = 32 * GIB


def run_round(
    requests: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    limits: RoundLimits,
    stop_at_s: float,
    terms: ScriptOptions,
    on_event: OnEvent = lambda place, message: None,
) -> Iterator[tuple[int, ProcessResult]]:
    """Yield the place of each request and its result, as soon as it is known.

    Args:
        requests: Modules (`CHILD` for a Keras model) and what each is asked.
        limits: Limits of each process.
        stop_at_s: Time at which everything has ended, on the monotonic clock [s].
        terms: Options for running the user's code.
        on_event: Callback for every message, with the place of the request.
    """
    prepare_s = min(limits.prepare_s, stop_at_s - time.monotonic() - MEASURE_RESERVE_S * len(requests))
    processes = []
    try:
        for place, (module, request) in enumerate(requests):
            processes.append(
                MeasuringProcess(
                    {**request, "wait": True},
                    lambda message, place=place: on_event(place, message),  # type: ignore[misc]
                    terms,
                    limit_s=prepare_s,
                    host_bytes=limits.host_bytes,
                    module=module,
                )
            )
        with ThreadPoolExecutor(len(processes)) as pool:
            waiting = [pool.submit(_prepare, process) for process in processes]
            try:
                ready = [one.result() for one in waiting]
            except BaseException:  # an interruption: the threads end with their processes
                for process in processes:
                    process.stop()
                raise
        for place, process in enumerate(processes):
            if ready[place]:
                left_s = max(stop_at_s - time.monotonic(), 1.0)
                process.start(limit_s=min(limits.measure_s, left_s))
                _guard(process, process.run)
            process.stop()
            yield place, process.result
    finally:
        for process in processes:
            process.stop()


def _prepare(process: MeasuringProcess) -> bool:
    return bool(_guard(process, process.prepare))


def _guard(process: MeasuringProcess, action: Callable[[], Any]) -> Any:
    """Run an action; an error of the user's code becomes the result of the process."""
    try:
        return action()
    except GpuplanError as error:
        process.result.status, process.result.message = "failed", str(error)
        return None


def count_together(platform: str, cores: int, device_bytes: int | None) -> int:
    """Return the number of parallel compilations: two cores and 16 GiB of a GPU for each, at most eight.

    Example:
        >>> count_together("gpu", 16, 141 * 10**9), count_together("gpu", 4, 16 * GIB)
        (8, 1)
    """
    if platform != "gpu" or device_bytes is None:
        return 1
    return max(1, min(cores // 2, device_bytes // (16 * GIB), 8))

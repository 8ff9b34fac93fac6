"""Background load on the processor during a measurement."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from ..profile_schema import LoadRecord, OtherProcess

OTHERS_SHARE = 0.10  # share of the processor above which other load visibly affects CPU times [-]
MIN_REPORTED_CORES = 0.05  # of one core: processes below are not reported [-]
MAX_REPORTED = 3  # reported processes [-]


def combine_loads(loads: Sequence[LoadRecord]) -> LoadRecord | None:
    """Combine processor use over several intervals: time-weighted means; None if there are none."""
    if not loads:
        return None
    wall_s = sum(load["wall_s"] for load in loads)
    cores: defaultdict[tuple[int, str], float] = defaultdict(float)
    for load in loads:
        for one in load["most"]:
            cores[one["pid"], one["name"]] += one["cores"] * load["wall_s"] / wall_s

    def mean(name: Literal["own_cores", "other_cores", "stolen_cores"]) -> float:
        return sum(load[name] * load["wall_s"] for load in loads) / wall_s

    others: list[OtherProcess] = [{"pid": pid, "name": name, "cores": one} for (pid, name), one in cores.items()]
    own, other, stolen = mean("own_cores"), mean("other_cores"), mean("stolen_cores")
    return _build_record(wall_s, loads[0]["cores"], own=own, other=other, stolen=stolen, others=others)


def _build_record(
    wall_s: float, cores: int, *, own: float, other: float, stolen: float, others: Sequence[OtherProcess]
) -> LoadRecord:
    return {
        "wall_s": wall_s,
        "cores": cores,
        "own_cores": own,
        "other_cores": other,
        "stolen_cores": stolen,
        "other_share": other / cores,
        "most": sorted(others, key=lambda one: -one["cores"])[:MAX_REPORTED],
    }


class LoadMonitor:
    """Monitor of processor time, by the measured processes and by others."""

    def __init__(self, own: Iterable[int]) -> None:
        """Start counting; `own`: IDs of measured processes, whose children are included."""
        import psutil

        self._roots = set(own)
        self._start_s = time.monotonic()
        self._machine = psutil.cpu_times()
        self._processes = _read_processes()

    def stop(self) -> LoadRecord:
        """Return the use since the start; may be called repeatedly."""
        import psutil

        wall_s = max(time.monotonic() - self._start_s, 1e-6)
        now, before = psutil.cpu_times(), self._machine
        stolen_s = max(getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0), 0.0)
        busy_s = max(_compute_busy_s(now) - _compute_busy_s(before), 0.0)
        ours, own_s = set(self._roots), 0.0
        for root in self._roots:
            with suppress(psutil.Error):
                ours.update(child.pid for child in psutil.Process(root).children(recursive=True))
        others: list[OtherProcess] = []
        for pid, (name, total_s) in _read_processes().items():
            spent_s = max(total_s - self._processes.get(pid, (name, 0.0))[1], 0.0)
            if pid in ours:
                own_s += spent_s
            elif spent_s / wall_s >= MIN_REPORTED_CORES:
                others.append({"pid": pid, "name": name, "cores": spent_s / wall_s})
        cores, own, other = os.cpu_count() or 1, own_s / wall_s, max(busy_s - own_s, 0.0) / wall_s
        return _build_record(wall_s, cores, own=own, other=other, stolen=stolen_s / wall_s, others=others)


def _compute_busy_s(times: Any) -> float:
    """Return the non-idle time of all cores, including other guests of a hypervisor [s]."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already counted in user time
    return float(sum(times) - idle - guests)


def _read_processes() -> dict[int, tuple[str, float]]:
    """Return name and processor time of every visible process [s]."""
    import psutil

    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found

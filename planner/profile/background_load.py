"""Background load on the processor during a measurement."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import to_plain

MIN_REPORTED_CORES = 0.05  # of one core: processes below are not reported [-]
MAX_REPORTED = 3  # reported processes [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProcess:
    """Another process, and the mean number of cores that it used [-]."""

    pid: int
    name: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorUse:
    """Processor use during an interval.

    Args:
        wall_s: Length of the interval [s].
        cores: Logical cores of the machine [-].
        own_cores: Mean number of cores used by the measured processes [-].
        other_cores: Mean number used by everything else, including other guests of a hypervisor [-].
        stolen_cores: Part of it taken by the hypervisor [-].
        most: Other processes with the highest use, descending.
    """

    wall_s: float
    cores: int
    own_cores: float
    other_cores: float
    stolen_cores: float
    most: tuple[OtherProcess, ...] = ()

    @property
    def other_share(self) -> float:
        """Share of the whole processor used by others [-]."""
        return self.other_cores / self.cores

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        plain = to_plain(self)
        most = plain.pop("most")
        return {**plain, "other_share": self.other_share, "most": most}


def combine_uses(busies: Sequence[ProcessorUse]) -> ProcessorUse | None:
    """Combine processor use over several intervals: time-weighted means; None if there are none."""
    if not busies:
        return None
    wall_s = sum(busy.wall_s for busy in busies)

    def mean(name: str) -> float:
        return float(sum(getattr(busy, name) * busy.wall_s for busy in busies) / wall_s)

    cores: defaultdict[tuple[int, str], float] = defaultdict(float)
    for busy in busies:
        for one in busy.most:
            cores[one.pid, one.name] += one.cores * busy.wall_s / wall_s
    most = [OtherProcess(pid=pid, name=name, cores=kept) for (pid, name), kept in cores.items()]
    return ProcessorUse(
        wall_s=wall_s,
        cores=busies[0].cores,
        own_cores=mean("own_cores"),
        other_cores=mean("other_cores"),
        stolen_cores=mean("stolen_cores"),
        most=_select_top(most),
    )


def _select_top(others: Sequence[OtherProcess]) -> tuple[OtherProcess, ...]:
    return tuple(sorted(others, key=lambda one: -one.cores)[:MAX_REPORTED])


class LoadMonitor:
    """Monitor of processor time, by the measured processes and by others."""

    def __init__(self, own: Iterable[int]) -> None:
        """Start counting; `own`: IDs of measured processes, whose children are included."""
        import psutil

        self._roots = set(own)
        self._start_s = time.monotonic()
        self._machine = psutil.cpu_times()
        self._processes = _read_processes()

    def stop(self) -> ProcessorUse:
        """Return the use since the start; may be called repeatedly."""
        import psutil

        wall_s = max(time.monotonic() - self._start_s, 1e-6)
        now, before = psutil.cpu_times(), self._machine
        stolen_s = max(getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0), 0.0)
        busy_s = max(_compute_busy_s(now) - _compute_busy_s(before), 0.0)
        ours = _find_descendants(self._roots)
        own_s, others = 0.0, []
        for pid, (name, total_s) in _read_processes().items():
            spent_s = max(total_s - self._processes.get(pid, (name, 0.0))[1], 0.0)
            if pid in ours:
                own_s += spent_s
            elif spent_s / wall_s >= MIN_REPORTED_CORES:
                others.append(OtherProcess(pid=pid, name=name, cores=spent_s / wall_s))
        return ProcessorUse(
            wall_s=wall_s,
            cores=os.cpu_count() or 1,
            own_cores=own_s / wall_s,
            other_cores=max(busy_s - own_s, 0.0) / wall_s,
            stolen_cores=stolen_s / wall_s,
            most=_select_top(others),
        )


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


def _find_descendants(roots: set[int]) -> set[int]:
    """Return processes and all their descendants."""
    import psutil

    family = set(roots)
    for root in roots:
        try:
            family.update(child.pid for child in psutil.Process(root).children(recursive=True))
        except psutil.Error:
            continue
    return family

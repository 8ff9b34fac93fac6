"""What else the processor did while something was timed."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Busy", "LoadWatch", "Other", "together"]

TELLING_SHARE = 0.05  # of one core: below, nobody would look for the culprit [-]
MOST_TOLD = 3  # culprits [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A process that was not ours.

    Args:
        pid: Its number.
        name: What it calls itself.
        cores: Cores that it kept busy [-].
    """

    pid: int
    name: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What the processor did during an interval.

    Args:
        wall_s: How long it was [s].
        cores: Logical cores of the machine [-].
        own_cores: Cores that our processes kept busy [-].
        other_cores: Cores that everything else kept busy, a hypervisor's other guests included [-].
        stolen_cores: Of those, what a hypervisor took [-].
        most: The other processes that used most, the greediest first.
    """

    wall_s: float
    cores: int
    own_cores: float
    other_cores: float
    stolen_cores: float
    most: tuple[Other, ...] = ()

    @property
    def other_share(self) -> float:
        """Share of the whole processor that went elsewhere [-]."""
        return self.other_cores / self.cores

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "wall_s": self.wall_s, "cores": self.cores, "own_cores": self.own_cores,
            "other_cores": self.other_cores, "stolen_cores": self.stolen_cores, "other_share": self.other_share,
            "most": [{"pid": one.pid, "name": one.name, "cores": one.cores} for one in self.most],
        }  # fmt: skip


def together(busies: Sequence[Busy]) -> Busy | None:
    """Return what the processor did during several intervals: means over all of their time; None of none."""
    if not busies:
        return None
    wall_s = sum(busy.wall_s for busy in busies)

    def mean(name: str) -> float:
        return float(sum(getattr(busy, name) * busy.wall_s for busy in busies) / wall_s)

    cores: defaultdict[tuple[int, str], float] = defaultdict(float)
    for busy in busies:
        for one in busy.most:
            cores[one.pid, one.name] += one.cores * busy.wall_s / wall_s
    most = [Other(pid=pid, name=name, cores=kept) for (pid, name), kept in cores.items()]
    return Busy(
        wall_s=wall_s, cores=busies[0].cores, own_cores=mean("own_cores"), other_cores=mean("other_cores"),
        stolen_cores=mean("stolen_cores"), most=_greediest(most),
    )  # fmt: skip


def _greediest(others: Sequence[Other]) -> tuple[Other, ...]:
    return tuple(sorted(others, key=lambda one: -one.cores)[:MOST_TOLD])


class LoadWatch:
    """Counts processor time from its creation on, ours and that of others."""

    def __init__(self, own: Iterable[int]) -> None:
        """Start counting.

        Args:
            own: Process ids whose time, children included, is ours.
        """
        import psutil

        self._roots = set(own)
        self._start_s = time.monotonic()
        self._machine = psutil.cpu_times()
        self._processes = _processes()

    def stop(self) -> Busy:
        """Return what happened since the start; may be called again later."""
        import psutil

        wall_s = max(time.monotonic() - self._start_s, 1e-6)
        now, before = psutil.cpu_times(), self._machine
        stolen_s = max(getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0), 0.0)
        busy_s = max(_busy_s(now) - _busy_s(before), 0.0)
        ours = _family(self._roots)
        own_s, others = 0.0, []
        for pid, (name, total_s) in _processes().items():
            spent_s = max(total_s - self._processes.get(pid, (name, 0.0))[1], 0.0)
            if pid in ours:
                own_s += spent_s
            elif spent_s / wall_s >= TELLING_SHARE:
                others.append(Other(pid=pid, name=name, cores=spent_s / wall_s))
        return Busy(
            wall_s=wall_s, cores=os.cpu_count() or 1, own_cores=own_s / wall_s,
            other_cores=max(busy_s - own_s, 0.0) / wall_s, stolen_cores=stolen_s / wall_s,
            most=_greediest(others),
        )  # fmt: skip


def _busy_s(times: Any) -> float:
    """Return the time that cores did not idle, a hypervisor's other guests included [s]."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user time already
    return float(sum(times) - idle - guests)


def _processes() -> dict[int, tuple[str, float]]:
    """Return name and processor time of every process that may be seen [s]."""
    import psutil

    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found


def _family(roots: set[int]) -> set[int]:
    """Return processes and all that they started."""
    import psutil

    family = set(roots)
    for root in roots:
        try:
            family.update(child.pid for child in psutil.Process(root).children(recursive=True))
        except psutil.Error:
            continue
    return family

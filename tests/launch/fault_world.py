"""What fault sequences need of a provider: a world with a clock, faults on request, and a billing meter."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from gpuplan.launch.core.clock import BackoffPolicy, Clock
from gpuplan.launch.core.cloud_adapter import Adapter
from gpuplan.launch.core.request import LaunchCandidate, RunSpec

__all__ = [
    "OWNERS",
    "CapMode",
    "KilledError",
    "Metered",
    "Mortal",
    "Resource",
    "World",
    "fail_writes",
    "kill_for_real",
    "kill_inside",
]

OWNERS = ("own-00000000000000a1", "own-00000000000000b2")  # two installations of the same user
CapMode = Literal["both", "guest", "cloud"]


class KilledError(BaseException):
    """A SIGKILL, seen from inside: nothing after it is executed, no handler of ours catches it."""


@dataclass(frozen=True)
class Metered:
    """A machine on the provider's billing meter.

    Args:
        lived_s: From the start of billing to its end, or to now [s].
        cap_s: From its tags [s].
        ends_after_s: From the start of billing to the earliest end that was ever set, by guest or cloud;
            None: nothing was set, or the world does not show it [s].
        foreign: Whether another user made it.
        usd: What it has cost, its disk included, that of one left behind too; None: the world has no prices [USD].
        unseen_s: Time at its end in which nobody looked: it may have lived so much longer [s].
        stopped: Whether its cloud has taken it back, and its disk goes on costing money.
        disarmed: Whether an end that was set for it was taken back while it lived.
    """

    id: str
    run: str
    attempt: str
    owner: str
    alive: bool
    lived_s: float
    cap_s: float | None
    ends_after_s: float | None
    foreign: bool = False
    usd: float | None = None
    unseen_s: float = 0.0
    stopped: bool = False
    disarmed: bool = False


@dataclass(frozen=True)
class Resource:
    """A thing of an attempt that exists at the provider and is no machine."""

    kind: str
    id: str
    run: str = ""


class World(Protocol):
    """A provider, its server, and the server's meter.

    Attributes:
        modes: Cap layers that sequences can be played with: `both`; `guest`: no layer at the cloud is armed;
            `cloud`: guests hang, so that their timers are never set.
        slack_s: From a cap to the latest end of billing, in every mode [s].
        faults: (operation, "before" or "after", what) that may be asked for.
        losing: Faults that hide a machine that was made; empty: it cannot be hidden.
        refusing: Faults that lose the answer to the call that makes a machine, and refuse its repetition.
        disarming: Faults that keep the cloud's cap from being armed; empty: it is part of the machine's call.
        shows_ends: Whether the meter tells when a machine is set to end; where not, only its life is judged.
        places: Regions, zones or subscriptions that can be out of reach.
        powers: What the world can do besides: `limits` (caps may be shortened), `prices`, `bids` (for
            spot machines), `tags`, `caps`.
        tag_edits: What may happen to the tags of a machine on record; None deletes one.
    """

    provider: str
    shows_ends: bool
    modes: tuple[CapMode, ...]
    slack_s: float
    faults: tuple[tuple[str, str, str], ...]
    losing: tuple[tuple[str, str, str], ...]
    refusing: tuple[tuple[str, str, str], ...]
    disarming: tuple[tuple[str, str, str], ...]
    powers: frozenset[str]
    tag_edits: tuple[dict[str, str | None], ...]
    places: tuple[str, ...]
    spec: RunSpec
    regions: list[str] | None
    clock: Clock
    backoff: BackoffPolicy

    def adapter(self, state_dir: Path) -> Adapter: ...
    def candidates(self) -> tuple[LaunchCandidate, ...]: ...
    def asked(self) -> dict[str, Any]: ...  # fields of the request that the mode decides
    def begin(self, mode: CapMode) -> None: ...
    def hang_guests(self, hang: bool) -> None: ...
    def fault(self, operation: str, when: str, what: str) -> None: ...
    def cut_off(self, place: str) -> None: ...
    def clear(self) -> None: ...
    def pass_time(self, seconds: float) -> None: ...
    def skew(self, hours: float) -> None: ...
    def reclaim(self) -> None: ...
    def foreign(self) -> None: ...
    def meter(self) -> list[Metered]: ...
    def resources(self) -> list[Resource]: ...
    def close(self, state_dir: Path) -> None: ...
    def change_prices(self, factor: float) -> None: ...  # from what they were at the beginning
    def edit_tags(self, identity: str, edits: dict[str, str | None]) -> None: ...
    def fail_caps(self) -> None: ...  # no end that was set for a living machine comes


class Mortal:
    """An adapter whose process is killed at its n-th exchange with the cloud: before it, or after the answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.exchanges_left: int | None = None
        self.kill: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def _exchange(self) -> None:
        if self.exchanges_left is not None:
            self.exchanges_left -= 1
            if self.exchanges_left < 0:
                self.exchanges_left = None
                self.kill()

    def send(self, call: Any, params: Any) -> Any:
        self._exchange()
        reply = self._adapter.send(call, params)
        self._exchange()
        return reply

    def machines(self, regions: Any) -> Any:
        self._exchange()
        return self._adapter.machines(regions)

    def look(self, machine: Any) -> Any:
        self._exchange()
        return self._adapter.look(machine)


@contextmanager
def fail_writes(number: int, how: str, kill: Callable[[], None], tally: Callable[[str], None]) -> Iterator[None]:
    """Let the writes to journals fail, from the n-th on.

    Args:
        number: Of the first write that fails, from 0 [-].
        how: `torn`: the process is killed in the middle of it; `full`: the disk takes a part of it, and no more.
        kill: Kills the process.
        tally: Counts what happened.
    """
    right, seen = os.write, 0

    def write(handle: int, data: bytes) -> int:
        nonlocal seen
        if not os.readlink(f"/proc/self/fd/{handle}").endswith(".jsonl"):
            return right(handle, data)
        seen += 1
        if seen <= number:
            return right(handle, data)
        tally(how)
        if how == "full" and seen > number + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = right(handle, data[: len(data) // 2])
        if how == "torn":
            kill()
        return done

    os.write = write  # type: ignore[assignment]
    try:
        yield
    finally:
        os.write = right


def kill_inside() -> None:
    """Stand in for a SIGKILL in this process."""
    raise KilledError


def kill_for_real() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)

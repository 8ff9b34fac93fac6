"""What worlds on a server of `cloud_server` share: its clock, its faults, its meter."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from gpuplan.launch.core.clock import BackoffPolicy
from launch.bench_on_sockets import SPEC, CloudClock
from launch.cloud_server import ServerProcess
from launch.fault_world import OWNERS, CapMode, Metered, Resource
from launch.worlds import FOREIGN_OWNER, RUN

__all__ = ["SocketsWorld"]


class SocketsWorld:
    """A provider's own are `provider`, `slack_s`, `faults`, `losing`, `adapter` and `candidates`."""

    regions = None
    shows_ends = True
    modes: tuple[CapMode, ...] = ("both",)
    places: tuple[str, ...] = ()
    refusing: tuple[tuple[str, str, str], ...] = ()
    disarming: tuple[tuple[str, str, str], ...] = ()
    powers = frozenset({"limits"})
    tag_edits: tuple[dict[str, str | None], ...] = ()
    spec = SPEC
    provider = ""
    backoff = BackoffPolicy(tries=3, first_wait_s=0.5, longest_wait_s=2.0, poll_s=5.0)

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.clock = CloudClock(server)

    def before_fork(self) -> None:
        self.server.session.close()

    def asked(self) -> dict[str, Any]:
        return {}

    def hang_guests(self, hang: bool) -> None:
        self.server.control(hang=hang)

    def cut_off(self, place: str) -> None:
        raise NotImplementedError(place)

    def begin(self, mode: CapMode) -> None:
        self.server.control(begin=True, hang=mode == "cloud")
        self.clock.skew = timedelta(0)

    def fault(self, operation: str, when: str, what: str) -> None:
        if operation == "invisible":
            self.server.control(invisible_s=float(what))
        else:
            self.server.control(faults=[{"operation": operation, "when": when, "how": what}])

    def clear(self) -> None:
        self.server.control(calm=True)

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def skew(self, hours: float) -> None:
        self.clock.skew = timedelta(hours=hours)

    def reclaim(self) -> None:
        self.server.control(reclaim_all=True, owners=OWNERS)

    def foreign(self) -> None:
        tags = {"gpuplan-run": RUN, "gpuplan-attempt": "1", "gpuplan-owner": FOREIGN_OWNER, "gpuplan-cap-s": "60"}
        self.server.control(foreign=tags)

    def meter(self) -> list[Metered]:
        state = self.server.control()
        assert state["violations"] == [], state["violations"]
        return [
            Metered(
                id=one["id"],
                run=one["tags"]["gpuplan-run"],
                attempt=one["tags"]["gpuplan-attempt"],
                owner=one["tags"]["gpuplan-owner"],
                alive=one["started_s"] is not None and one["ended_s"] is None,
                lived_s=(one["ended_s"] or state["elapsed_s"]) - (one["started_s"] or state["elapsed_s"]),
                cap_s=float(one["tags"]["gpuplan-cap-s"]),
                ends_after_s=one["ends_after_s"],
                foreign=one["tags"]["gpuplan-owner"] not in OWNERS,
            )
            for one in state["meter"]
        ]

    def resources(self) -> list[Resource]:
        return [
            Resource("resource", path) for path in self.server.control().get("left", ()) if "theirs" not in path
        ]

    def close(self, state_dir: Path) -> None:
        pass

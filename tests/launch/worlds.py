"""The worlds that fault sequences run in: a cloud in memory, AWS over HTTP, and this computer's processes."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from gpuplan.launch.clouds.aws.adapter import BOOT_ALLOWANCE_S, AwsAdapter
from gpuplan.launch.clouds.local import LocalAdapter
from gpuplan.launch.core.api_call import ErrorKind
from gpuplan.launch.core.clock import BackoffPolicy, Clock
from gpuplan.launch.core.request import LaunchCandidate, RunSpec
from launch.aws_world import AwsServer, ServerClock
from launch.fake_cloud import SLACK_S, USD_PER_HOUR, FakeAdapter, FakeClock, FakeCloud, Rented, candidate
from launch.fault_world import OWNERS, CapMode, Metered, Resource

RUN, FOREIGN_OWNER = "r00000001-1", "own-ffffffffffffffff"
TAG_EDITS: tuple[dict[str, str | None], ...] = (
    {"gpuplan-cap-s": "999999"}, {"gpuplan-cap-s": "60"}, {"gpuplan-cap-s": None},
    {"gpuplan-owner": FOREIGN_OWNER}, {"gpuplan-run": "r0fffffff-9"}, {"gpuplan-attempt": "7"},
)  # fmt: skip
_OTHERS = (
    "create_group", "delete_group", "end_machine", "get_machine", "create_schedule", "get_schedule",
    "delete_schedule", "leftovers",
)  # fmt: skip
QUICK = BackoffPolicy(tries=3, first_wait_s=0.5, longest_wait_s=2.0, poll_s=5.0)


class FakeWorld:
    """The cloud in memory."""

    provider = "fake"
    shows_ends = True
    modes: tuple[CapMode, ...] = ("both", "guest", "cloud")
    slack_s = SLACK_S + 1
    places = ("here", "there", "listing of here", "listing of there")
    regions = None
    spec = RunSpec(script="train.py", source="folder:/nowhere")
    backoff = QUICK
    faults = (
        *(("create_machine", "before", kind.name) for kind in ErrorKind if kind is not ErrorKind.ABSENT),
        ("create_machine", "after", "UNKNOWN"),
        *product(_OTHERS, ("before", "after"), ("UNKNOWN",)),
        ("list", "before", "UNKNOWN"),
        ("list", "before", "CREDENTIALS"),
        ("look", "before", "UNKNOWN"),
        ("get_machine", "before", "INVALID"),
        ("create_schedule", "before", "CREDENTIALS"),
        ("get_schedule", "before", "INVALID"),
        ("end_machine", "before", "CREDENTIALS"),
        ("invisible", "before", "30"),
    )

    losing = (("create_machine", "after", "UNKNOWN"), ("invisible", "before", "30"))
    refusing = (("create_machine", "after", "UNKNOWN"), ("create_machine", "before", "CAPACITY"))
    powers = frozenset({"limits", "prices", "tags", "caps"})
    tag_edits = (*TAG_EDITS, {"gpuplan-run": None}, {"gpuplan-run": None, "gpuplan-owner": None})
    disarming = (("create_schedule", "before", "CREDENTIALS"), ("get_schedule", "before", "INVALID"))

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.begin("both")

    def begin(self, mode: CapMode) -> None:
        self.mode = mode
        self.cloud = FakeCloud(self.clock, hang=mode == "cloud")

    def hang_guests(self, hang: bool) -> None:
        self.cloud.hang = hang

    def asked(self) -> dict[str, Any]:
        return {"options": {"layers": "guest"} if self.mode == "guest" else {}}

    def adapter(self, state_dir: Path) -> Any:
        return FakeAdapter(self.cloud)

    def candidates(self) -> tuple[LaunchCandidate, ...]:
        return (candidate("here"), candidate("there"))

    def fault(self, operation: str, when: str, what: str) -> None:
        if operation == "invisible":
            self.cloud.invisible_s = float(what)
        else:
            self.cloud.faults.setdefault(operation, []).append((when, ErrorKind[what]))

    def cut_off(self, place: str) -> None:
        region = place.removeprefix("listing of ")
        (self.cloud.out_of_reach if place == region else self.cloud.down).add(region)

    def clear(self) -> None:
        self.cloud.faults.clear()
        self.cloud.out_of_reach.clear()
        self.cloud.down.clear()
        self.cloud.invisible_s = 0.0

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def skew(self, hours: float) -> None:
        self.clock.skew = timedelta(hours=hours)

    def reclaim(self) -> None:
        for one in self._ours():
            one.ended = self.clock.true_time()

    def _ours(self) -> list[Rented]:
        return [one for one in self.cloud.alive() if one.params["tags"]["gpuplan-owner"] in OWNERS]

    def change_prices(self, factor: float) -> None:
        for region in self.cloud.regions:
            self.cloud.prices[region] = USD_PER_HOUR * Decimal(factor)

    def edit_tags(self, identity: str, edits: dict[str, str | None]) -> None:
        tags = {**self.cloud.rented[identity].tags, **edits}
        self.cloud.rented[identity].tags = {name: value for name, value in tags.items() if value is not None}

    def fail_caps(self) -> None:
        for one in self._ours():
            one.timer_at = one.scheduled_at = None
        for schedule in self.cloud.schedules.values():
            schedule["target"] = ""

    def foreign(self) -> None:
        tags = {
            "gpuplan-run": RUN,
            "gpuplan-attempt": "1",
            "gpuplan-owner": FOREIGN_OWNER,
            "gpuplan-cap-s": str(10**9),
            "gpuplan-microusd-per-hour": "1",
        }
        what = {"type": "big", "region": "here", "group": "theirs", "tags": tags}
        self.cloud.create({"token": f"f{len(self.cloud.rented)}", **what})

    def meter(self) -> list[Metered]:
        self.cloud.alive()
        return [
            Metered(
                id=one.id,
                run=one.params["tags"].get("gpuplan-run", ""),
                attempt=one.params["tags"].get("gpuplan-attempt", ""),
                owner=one.params["tags"]["gpuplan-owner"],
                alive=one.ended is None,
                lived_s=((one.ended or self.clock.true_time()) - one.started).total_seconds(),
                cap_s=float(one.params["tags"]["gpuplan-cap-s"]),
                ends_after_s=one.ends_after_s,
                foreign=one.params["tags"]["gpuplan-owner"] not in OWNERS,
                usd=((one.ended or self.clock.true_time()) - one.started).total_seconds()
                / 3600
                * float(one.usd_per_hour),
                disarmed=one.disarmed,
            )
            for one in self.cloud.rented.values()
        ]

    def resources(self) -> list[Resource]:
        groups = [Resource("group", one, name) for one, name in self.cloud.groups.items()]
        return [*groups, *(Resource("schedule", name, name) for name in self.cloud.schedules)]

    def close(self, state_dir: Path) -> None:
        pass


class AwsWorld:
    """AWS over HTTP, with real boto3."""

    provider = "aws"
    shows_ends = True
    modes: tuple[CapMode, ...] = ("both", "guest", "cloud")
    places = ("us-east-1", "us-west-2", "listing of us-east-1", "listing of us-west-2")
    slack_s = BOOT_ALLOWANCE_S + 60
    regions = ["us-east-1", "us-west-2"]  # noqa: RUF012
    spec = RunSpec(script="train.py", source="git:https://example.org/x@main")
    backoff = QUICK
    faults = (
        *product(("RunInstances",), ("before",), (
            "InsufficientInstanceCapacity", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded",
            "RequestLimitExceeded", "InternalError", "ExpiredToken", "AuthFailure", "InvalidParameterValue",
            "reset",
        )),
        *product(("RunInstances",), ("after",), ("reset", "garbage", "InternalError")),
        *product(("CreateSecurityGroup", "CreateSchedule", "TerminateInstances"), ("before", "after"), ("reset",)),
        *product(("DescribeInstances",), ("before",), ("InternalError", "ExpiredToken")),
        ("DescribeInstanceAttribute", "before", "InternalError"),
        ("CreateSchedule", "before", "AccessDeniedException"), ("TerminateInstances", "before", "ExpiredToken"),
        ("GetParameter", "before", "ThrottlingException"),
        ("DeleteSecurityGroup", "before", "DependencyViolation"),
        ("invisible", "before", "20"),
    )  # fmt: skip

    losing = (("RunInstances", "after", "reset"), ("invisible", "before", "30"))
    refusing = (("RunInstances", "after", "reset"), ("RunInstances", "before", "InsufficientInstanceCapacity"))
    powers = frozenset({"limits", "prices", "tags", "caps", "bids"})
    tag_edits = TAG_EDITS  # without its run's tag, the role may not end a machine: reap does
    disarming = (("CreateSchedule", "before", "AccessDeniedException"),)

    def __init__(self, server: AwsServer) -> None:
        self.server = server
        self.clock = ServerClock(server)
        self._clients: dict[tuple[str, str], Any] = {}  # boto3 needs half a second to make one

    def before_fork(self) -> None:
        for client in self._clients.values():
            client.close()
        self.server.session.close()

    def begin(self, mode: CapMode) -> None:
        self.mode = mode
        self.server.post("reset")
        self.server.post("hang", on=mode == "cloud")
        self.clock.skew = timedelta(0)

    def hang_guests(self, hang: bool) -> None:
        self.server.post("hang", on=hang)

    def cut_off(self, place: str) -> None:
        region = place.removeprefix("listing of ")
        if place == region:
            self.server.post("out_of_reach", region=place)
        else:
            fault = {"operation": "DescribeInstances", "when": "before", "what": "InternalError"}
            self.server.post("fault", **fault, times=6, region=region)

    def change_prices(self, factor: float) -> None:
        for region in self.regions:
            offer = {"instance_type": "g4dn.xlarge", "region": region}
            self.server.post("price", **offer, is_spot=True, usd_per_hour=f"{0.2413 * factor:.6f}")
            self.server.post("price", **offer, is_spot=False, usd_per_hour=f"{0.526 * factor:.6f}")

    def edit_tags(self, identity: str, edits: dict[str, str | None]) -> None:
        self.server.post("tags", id=identity, tags=edits)

    def fail_caps(self) -> None:
        self.server.post("fail_caps")

    def asked(self) -> dict[str, Any]:
        if self.mode == "guest":
            return {"guest_cap_only": True}
        return {
            "options": {"scheduler_role": "arn:aws:iam::123456789012:role/gpuplan"} if self.mode == "cloud" else {}
        }

    def adapter(self, state_dir: Path) -> Any:
        adapter = AwsAdapter(state_dir=state_dir, clock=self.clock)
        adapter._clients = self._clients
        return adapter

    def candidates(self) -> tuple[LaunchCandidate, ...]:
        return (aws_candidate("us-east-1", "spot"), aws_candidate("us-west-2", "on_demand"))

    def fault(self, operation: str, when: str, what: str) -> None:
        if operation == "invisible":
            self.server.post("invisible", s=float(what))
        else:
            self.server.post("fault", operation=operation, when=when, what=what)

    def clear(self) -> None:
        self.server.post("clear")

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def skew(self, hours: float) -> None:
        self.clock.skew = timedelta(hours=hours)

    def reclaim(self) -> None:
        self.server.post("reclaim")

    def foreign(self) -> None:
        tags = {"gpuplan-run": RUN, "gpuplan-attempt": "1", "gpuplan-owner": FOREIGN_OWNER, "gpuplan-cap-s": "60"}
        self.server.post("foreign", region="us-east-1", tags=tags)

    def meter(self) -> list[Metered]:
        answer = self.server.post("meter")
        now = datetime.fromisoformat(answer["now"])
        return [
            Metered(
                id=one["id"],
                run=one["run"],
                attempt=one["attempt"],
                owner=one["owner"],
                alive=one["ended"] is None,
                lived_s=(
                    (datetime.fromisoformat(one["ended"]) if one["ended"] else now)
                    - datetime.fromisoformat(one["started"])
                ).total_seconds(),
                cap_s=float(one["cap_s"]) if one["cap_s"] else None,
                ends_after_s=_ends_after_s(one),
                foreign=one["foreign"],
                usd=one["usd"],
                stopped=one["stopped"],
                disarmed=one["disarmed"],
            )
            for one in answer["machines"]
        ]

    def resources(self) -> list[Resource]:
        return [Resource(one["kind"], one["id"]) for one in self.server.post("meter")["resources"]]

    def close(self, state_dir: Path) -> None:
        pass


class LocalWorld:
    """This computer: real processes, and a meter that reads them from `/proc`, not from the provider's files."""

    provider = "local"
    shows_ends = False
    modes: tuple[CapMode, ...] = ("both",)
    places: tuple[str, ...] = ()
    slack_s = 4.0  # arming, a loaded machine
    regions = None
    backoff = BackoffPolicy(tries=3, first_wait_s=0.05, longest_wait_s=0.1, poll_s=0.2)
    faults = (
        ("start", "before", "UNKNOWN"),
        ("start", "after", "UNKNOWN"),
        ("end", "after", "UNKNOWN"),
        ("describe", "before", "INVALID"),
        ("start", "before", "CAPACITY"),
    )
    keeps_nothing_here = False
    losing = ()
    refusing = ()
    powers: frozenset[str] = frozenset()
    tag_edits: tuple[dict[str, str | None], ...] = ()
    disarming = ()
    CAP_S = 3

    def __init__(self, source: Path) -> None:
        (source / "train.py").write_text("import time; time.sleep(600)")
        self.spec = RunSpec(script="train.py", source=f"folder:{source}")
        self.clock = Clock()
        self.begin("both")

    def asked(self) -> dict[str, Any]:
        return {}

    def hang_guests(self, hang: bool) -> None:
        pass  # here the guest is the supervisor itself

    def cut_off(self, place: str) -> None:
        raise NotImplementedError(place)

    def begin(self, mode: CapMode) -> None:
        self.wanted: dict[str, list[tuple[str, ErrorKind]]] = {}
        self.seen: dict[str, tuple[float, float]] = {}
        self.gone: dict[str, float] = {}
        self.folders: set[Path] = set()

    def adapter(self, state_dir: Path) -> Any:
        self.folders.add(state_dir)
        return _Faulty(LocalAdapter(state_dir=state_dir, clock=self.clock), self.wanted)

    def candidates(self) -> tuple[LaunchCandidate, ...]:
        return (candidate("local", "this-machine", "0").model_copy(update={"cap_s": self.CAP_S}),)

    def fault(self, operation: str, when: str, what: str) -> None:
        self.wanted.setdefault(operation, []).append((when, ErrorKind[what]))

    def clear(self) -> None:
        self.wanted.clear()

    def pass_time(self, seconds: float) -> None:
        time.sleep(min(seconds, 1800) / 1800)

    def skew(self, hours: float) -> None:
        pass  # its clock is the cloud's

    def reclaim(self) -> None:
        for group in {group for group, _ in self._processes().values()}:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(group, signal.SIGKILL)

    def foreign(self) -> None:
        pass

    def meter(self) -> list[Metered]:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        alive = self._processes()
        for identity, (_, started_s) in alive.items():
            self.seen[identity] = (self.seen.get(identity, (started_s, now))[0], now)
        for identity in self.seen.keys() - alive.keys():
            self.gone.setdefault(identity, now)
        return [
            Metered(
                id=identity,
                run=_tags(identity, self.folders)["gpuplan-run"],
                attempt=_tags(identity, self.folders)["gpuplan-attempt"],
                owner=_tags(identity, self.folders)["gpuplan-owner"],
                alive=identity in alive,
                lived_s=last - first,
                cap_s=float(self.CAP_S),
                ends_after_s=None,
                unseen_s=self.gone.get(identity, last) - last,
            )
            for identity, (first, last) in self.seen.items()
        ]

    def resources(self) -> list[Resource]:
        return []

    def close(self, state_dir: Path) -> None:
        self.reclaim()

    def _processes(self) -> dict[str, tuple[int, float]]:
        """Return the machines whose supervisor or script is alive: process group and start since boot [s].

        A machine starts with its first process, which is the watchdog.
        """
        groups: dict[str, int] = {}
        started_s: dict[str, float] = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_text().split("\0")
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            machine = next((Path(word) for word in words if "/machines/local-" in word), None)
            if machine is None or machine.parents[1] not in self.folders or fields[0] == "Z":
                continue
            # proc_pid_stat(5): field 5 is the group, field 22 the start since boot, in ticks.
            at_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            started_s[machine.name] = min(started_s.get(machine.name, at_s), at_s)
            if not any("watchdog" in word for word in words):
                groups[machine.name] = int(fields[2])
        return {name: (group, started_s[name]) for name, group in groups.items()}


class _Faulty:
    """An adapter that goes wrong on request; what it answers otherwise is the real one's."""

    def __init__(self, adapter: LocalAdapter, wanted: dict[str, list[tuple[str, ErrorKind]]]) -> None:
        self._adapter, self._wanted = adapter, wanted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def send(self, call: Any, params: Any) -> Any:
        from gpuplan.launch.core.api_call import CloudError

        wanted = self._wanted.get(call.operation)
        when, kind = wanted.pop(0) if wanted else ("", None)
        if kind is not None and when == "before":
            raise CloudError(kind, kind.name, "on request, before")
        reply = self._adapter.send(call, params)
        if kind is not None:
            raise CloudError(kind, kind.name, "on request, after")
        return reply


def _ends_after_s(one: dict[str, Any]) -> float | None:
    """Return the time from an instance's start to the earliest end that was set for it [s]."""
    ends = [datetime.fromisoformat(at) for at in (one["timer_at"], one["schedule_at"]) if at]
    started = datetime.fromisoformat(one["started"])
    return (min(ends) - started).total_seconds() if ends else None


def aws_candidate(region: str, purchase: Any) -> LaunchCandidate:
    """Return a T4 at AWS for an hour."""
    return LaunchCandidate(
        rank=1,
        instance_type="g4dn.xlarge",
        accelerator="T4",
        devices=1,
        region=region,
        purchase=purchase,
        usd_per_hour=Decimal("0.526"),
        price_as_of="2026-11",
        run_s=None,
        step_s=None,
        cap_s=3600,
    )


def _tags(identity: str, folders: set[Path]) -> dict[str, str]:
    """Return a local machine's tags."""
    import json

    for folder in folders:
        asked = folder / "machines" / identity / "asked.json"
        if asked.exists():
            return dict(json.loads(asked.read_text())["tags"])
    raise LookupError(identity)

"""A cloud in memory, with a billing meter and faults on request, and its adapter: the engine's own test bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuplan.launch.adapter import Machine, Outcome
from gpuplan.launch.blueprint import Attempt, CapLayer, Terms
from gpuplan.launch.calls import Call
from gpuplan.launch.faults import CloudFault, FaultKind
from gpuplan.launch.names import resource_name, tags_of, token_of, usd_from_tag
from gpuplan.launch.request import Candidate, LaunchRequest

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SLACK_S = 60.0


class FakeClock:
    """A clock that moves when it is slept on; the wall clock may be wrong, the steady one is not."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.skew = timedelta(0)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s) + self.skew

    def monotonic(self) -> float:
        return self.elapsed_s

    def sleep(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def true_time(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s)


@dataclass
class Rented:
    """What the meter knows of a machine."""

    id: str
    params: dict[str, Any]
    started: datetime
    ended: datetime | None = None


@dataclass
class FakeCloud:
    """Machines by token, side resources by name, a queue of faults: `(when, kind)` by operation."""

    clock: FakeClock
    rented: dict[str, Rented] = field(default_factory=dict)
    by_token: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[tuple[str, FaultKind | None]]] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    invisible_s: float = 0.0

    def alive(self) -> list[Rented]:
        """Return what still costs money; what is past its own cap ends here, as the cloud's cap layer does."""
        now = self.clock.true_time()
        for one in self.rented.values():
            limit = one.started + timedelta(seconds=int(one.params["tags"]["gpuplan-cap-s"]) + SLACK_S)
            if one.ended is None and now >= limit:
                one.ended = limit
        return [one for one in self.rented.values() if one.ended is None]

    def create(self, params: dict[str, Any]) -> Rented:
        known = self.by_token.get(params["token"])
        if known is not None:
            if self.rented[known].ended is not None:
                raise CloudFault(FaultKind.SPENT_TOKEN, "Spent", "the machine of this token has ended")
            return self.rented[known]
        one = Rented(id=f"m-{len(self.rented) + 1}", params=params, started=self.clock.true_time())
        self.rented[one.id] = one
        self.by_token[params["token"]] = one.id
        return one


class FakeAdapter:
    """The adapter of the cloud in memory."""

    provider = "fake"
    remote = True
    visibility_s = 60.0

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self.before_send: Any = lambda operation: None

    def terms(self, candidate: Candidate, options: Mapping[str, str]) -> Terms:
        return Terms(slack_s=SLACK_S, max_usd_per_hour=candidate.usd_per_hour)

    def attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        return tuple(
            self._attempt(request, candidate, number)
            for number, candidate in enumerate(request.candidates, start=request.attempt)
        )

    def _attempt(self, request: LaunchRequest, candidate: Candidate, number: int) -> Attempt:
        name, region = resource_name(request, number), candidate.region
        token = token_of(request=request, number=number, candidate=candidate, zone=None)
        find = Call(
            step="group",
            service="fake",
            operation="find_group",
            region=region,
            params={"name": name},
            keeps={"id": "id"},
        )
        drop = Call(
            step="group",
            service="fake",
            operation="delete_group",
            region=region,
            params={"id": {"$ref": "group.id"}},
        )
        group = Call(
            step="group",
            service="fake",
            operation="create_group",
            region=region,
            params={"name": name},
            makes="resource",
            keeps={"id": "id"},
            find=find,
            undo=(drop,),
        )
        machine = Call(
            step="machine",
            service="fake",
            operation="create_machine",
            region=region,
            makes="machine",
            params={
                "token": token,
                "type": candidate.instance_type,
                "region": region,
                "group": {"$ref": "group.id"},
                "tags": tags_of(request=request, number=number, candidate=candidate),
            },
            token=token,
            keeps={"id": "id", "started": "started"},
            arms="timer",
        )
        check = Call(
            step="running",
            service="fake",
            operation="get_machine",
            region=region,
            params={"id": {"$ref": "machine.id"}},
            expects={"state": "running"},
            patience_s=120,
            arms="cap",
        )
        return Attempt(
            number=number,
            candidate=candidate,
            zone=None,
            calls=(group, machine, check),
            layers=(
                CapLayer(name="timer", where="machine", fires_after_s=candidate.cap_s, how="a timer"),
                CapLayer(name="cap", where="cloud", fires_after_s=candidate.cap_s + SLACK_S, how="a cap"),
            ),
            stop_by_hand=f"fake end {name}",
        )

    def ending(self, machine: Machine) -> tuple[Call, ...]:
        return (
            Call(
                step="end",
                service="fake",
                operation="end_machine",
                region=machine.region,
                params={"id": machine.id},
            ),
        )

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        cloud = self.cloud
        self.before_send(call.operation)
        cloud.sent.append(call.operation)
        when, kind = (cloud.faults.get(call.operation) or [("", None)]).pop(0)
        if kind is not None and when == "before":
            raise CloudFault(kind, kind.name, "on request, before it was done")
        reply = getattr(self, f"_{call.operation}")(dict(params))
        if kind is not None:
            raise CloudFault(kind, kind.name, "on request, after it was done")
        return reply

    def _create_group(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] in self.cloud.groups.values():
            raise CloudFault(FaultKind.EXISTS, "Duplicate", params["name"])
        identity = f"g-{len(self.cloud.sent)}"
        self.cloud.groups[identity] = params["name"]
        return {"id": identity}

    def _find_group(self, params: dict[str, Any]) -> dict[str, Any]:
        for identity, name in self.cloud.groups.items():
            if name == params["name"]:
                return {"id": identity}
        raise CloudFault(FaultKind.ABSENT, "NotFound", params["name"])

    def _delete_group(self, params: dict[str, Any]) -> dict[str, Any]:
        if any(one.params["group"] == params["id"] for one in self.cloud.alive()):
            raise CloudFault(FaultKind.TRANSIENT, "InUse", params["id"])
        if self.cloud.groups.pop(params["id"], None) is None:
            raise CloudFault(FaultKind.ABSENT, "NotFound", params["id"])
        return {}

    def _create_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.create(params)
        return {"id": one.id, "started": one.started.isoformat()}

    def _get_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.rented[params["id"]]
        self.cloud.alive()
        if one.ended is not None:
            raise CloudFault(FaultKind.SPENT_TOKEN, "Ended", one.id)
        return {"state": "running"}

    def _end_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.rented[params["id"]]
        one.ended = one.ended or self.cloud.clock.true_time()
        return {}

    def missing(self) -> str:
        return ""

    def cloud_time(self) -> datetime | None:
        return self.cloud.clock.true_time()

    def machines(self, regions: Sequence[str] | None) -> list[Machine]:
        self.before_send("list")
        when, kind = (self.cloud.faults.get("list") or [("", None)]).pop(0)
        if kind is not None:
            raise CloudFault(kind, kind.name, f"on request, {when}")
        now = self.cloud.clock.true_time()
        return [
            self._machine(one)
            for one in self.cloud.alive()
            if (regions is None or one.params["region"] in regions)
            and "gpuplan-run" in one.params["tags"]
            and now - one.started >= timedelta(seconds=self.cloud.invisible_s)
        ]

    def _machine(self, one: Rented) -> Machine:
        tags = one.params["tags"]
        return Machine(
            id=one.id,
            provider="fake",
            region=one.params["region"],
            instance_type=one.params["type"],
            purchase="on_demand",
            state="running",
            started_at=one.started,
            seen_at=self.cloud.clock.true_time(),
            cap_at=one.started + timedelta(seconds=int(tags["gpuplan-cap-s"])),
            run=tags["gpuplan-run"],
            attempt=int(tags["gpuplan-attempt"]),
            owner=tags["gpuplan-owner"],
            usd_per_hour=usd_from_tag(tags["gpuplan-microusd-per-hour"]),
        )

    def outcome(self, request: LaunchRequest) -> Outcome | None:
        return None


def candidate(region: str = "here", instance_type: str = "big", usd_per_hour: str = "1.5") -> Candidate:
    """Return an offer whose run takes about half an hour."""
    return Candidate(
        rank=1,
        instance_type=instance_type,
        accelerator="T4",
        devices=1,
        region=region,
        purchase="on_demand",
        usd_per_hour=Decimal(usd_per_hour),
        price_as_of="2026-11",
        run_s=None,
        step_s=None,
        cap_s=3600,
    )

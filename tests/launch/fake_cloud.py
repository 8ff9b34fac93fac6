"""A cloud in memory, with a billing meter and faults on request, and its adapter: the engine's own test bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any

from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import (
    Adapter,
    CloudMachine,
    Leftover,
    Listing,
    LivePrice,
    MachineRef,
    RunOutcome,
    ask_places,
)
from gpuplan.launch.core.launch_plan import Attempt, CapLayer, CostBounds
from gpuplan.launch.core.request import (
    LaunchCandidate,
    LaunchRequest,
    build_resource_name,
    build_tags,
    build_token,
    parse_tags,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
USD_PER_HOUR = Decimal("1.5")
BOOT_S = 30.0  # from the start of billing until the guest sets its own timer
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
    """A machine on the meter; `timer_at` is None when its guest never set a timer."""

    id: str
    params: dict[str, Any]
    started: datetime
    timer_at: datetime | None
    ended: datetime | None = None
    scheduled_at: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict)  # those of `params` are what it was made with
    usd_per_hour: Decimal = Decimal(0)
    disarmed: bool = False  # its schedule was removed while it lived

    @property
    def ends_after_s(self) -> float | None:
        """Time from the start to the earliest end that was ever set [s]."""
        ends = [at for at in (self.timer_at, self.scheduled_at) if at is not None]
        return (min(ends) - self.started).total_seconds() if ends else None


@dataclass
class FakeCloud:
    """Machines by token, side resources by name, a queue of faults: `(when, kind)` by operation.

    A machine ends by its guest's timer, by a schedule of the cloud, or on request. Guests that start while `hang`
    is set never run their start-up script. Regions in `down` do not
    list their machines; those in `out_of_reach` answer nothing at all.
    """

    clock: FakeClock
    rented: dict[str, Rented] = field(default_factory=dict)
    by_token: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    group_tags: dict[str, dict[str, str]] = field(default_factory=dict)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, list[tuple[str, ErrorKind | None]]] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    invisible_s: float = 0.0
    hang: bool = False
    regions: tuple[str, ...] = ("here", "there")
    down: set[str] = field(default_factory=set)
    out_of_reach: set[str] = field(default_factory=set)
    prices: dict[str, Decimal] = field(default_factory=dict)
    consoles: dict[str, str] = field(default_factory=dict)

    def alive(self) -> list[Rented]:
        """Return the machines that cost money now, after everything that was due has happened."""
        now = self.clock.true_time()
        due = [(one.timer_at, one.id) for one in self.rented.values() if one.timer_at and one.timer_at <= now]
        for name, schedule in list(self.schedules.items()):
            if schedule["at"] <= now:
                due.append((schedule["at"], schedule["target"]))
                del self.schedules[name]
        for at, identity in sorted(due):
            one = self.rented.get(identity)
            if one is not None:
                one.ended = one.ended or max(at, one.started)
        return [one for one in self.rented.values() if one.ended is None]

    def create(self, params: dict[str, Any]) -> Rented:
        known = self.by_token.get(params["token"])
        if known is not None:
            if self.rented[known].ended is not None:
                raise CloudError(ErrorKind.SPENT_TOKEN, "Spent", "the machine of this token has ended")
            return self.rented[known]
        now, timer_s = self.clock.true_time(), params.get("timer_s")
        timer_at = None if self.hang or timer_s is None else now + timedelta(seconds=BOOT_S + timer_s)
        one = Rented(
            id=f"m-{len(self.rented) + 1}",
            params=params,
            started=now,
            timer_at=timer_at,
            tags=dict(params["tags"]),
            usd_per_hour=self.prices.get(params["region"], USD_PER_HOUR),
        )
        self.rented[one.id] = one
        self.by_token[params["token"]] = one.id
        return one


class FakeAdapter(Adapter):
    """The adapter of the cloud in memory."""

    provider = "fake"
    remote = True
    visibility_s = 60.0

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self.before_send: Any = lambda operation: None

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        return CostBounds(slack_s=SLACK_S, max_usd_per_hour=candidate.usd_per_hour)

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        return tuple(
            self._attempt(request, candidate, number)
            for number, candidate in enumerate(request.candidates, start=request.attempt)
        )

    def _attempt(self, request: LaunchRequest, candidate: LaunchCandidate, number: int) -> Attempt:
        name, guest_only = build_resource_name(request, number), request.options.get("layers") == "guest"
        timer = CapLayer(
            name="timer", where="machine", fires_after_s=candidate.cap_s + BOOT_S, how="the guest's timer"
        )
        cap = CapLayer(
            name="cap", where="cloud", fires_after_s=candidate.cap_s + SLACK_S, how="a schedule of the cloud"
        )
        machine = _machine_call(request, candidate, number)
        return Attempt(
            number=number,
            candidate=candidate,
            zone=None,
            calls=(
                _group_call(request, candidate, number),
                machine,
                *(() if guest_only else _schedule_calls(request, candidate, number)),
                _call(
                    candidate,
                    "running",
                    "get_machine",
                    {"id": MACHINE},
                    expects={"state": "running"},
                    patience_s=120,
                ),
            ),
            layers=(timer,) if guest_only else (timer, cap),
            stop_by_hand=f"fake end {name}",
        )

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
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
        self._require_up(call.region)
        cloud.sent.append(call.operation)
        when, kind = (cloud.faults.get(call.operation) or [("", None)]).pop(0)
        if kind is not None and when == "before":
            raise CloudError(kind, kind.name, "on request, before it was done")
        reply = getattr(self, f"_{call.operation}")(dict(params))
        if kind is not None:
            raise CloudError(kind, kind.name, "on request, after it was done")
        return reply

    def _create_group(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] in self.cloud.groups.values():
            raise CloudError(ErrorKind.EXISTS, "Duplicate", params["name"])
        identity = f"g-{len(self.cloud.sent)}"
        self.cloud.groups[identity] = params["name"]
        self.cloud.group_tags[identity] = params["tags"]
        return {"id": identity}

    def _find_group(self, params: dict[str, Any]) -> dict[str, Any]:
        for identity, name in self.cloud.groups.items():
            if name == params["name"]:
                return {"id": identity}
        raise CloudError(ErrorKind.ABSENT, "NotFound", params["name"])

    def _delete_group(self, params: dict[str, Any]) -> dict[str, Any]:
        used = [
            one for one in self.cloud.alive() if self._is_visible(one)
        ]  # as eventually consistent as its lists
        if any(one.params["group"] == params["id"] for one in used):
            raise CloudError(ErrorKind.TRANSIENT, "InUse", params["id"])
        if self.cloud.groups.pop(params["id"], None) is None:
            raise CloudError(ErrorKind.ABSENT, "NotFound", params["id"])
        return {}

    def _create_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.create(params)
        return {"id": one.id, "started": one.started.isoformat()}

    def _create_schedule(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] in self.cloud.schedules:
            raise CloudError(ErrorKind.EXISTS, "Duplicate", params["name"])
        at = datetime.fromisoformat(params["at"]).replace(tzinfo=UTC)
        self.cloud.schedules[params["name"]] = {**params, "at": at}
        if params["target"] in self.cloud.rented:
            self.cloud.rented[params["target"]].scheduled_at = at
        return {}

    def _get_schedule(self, params: dict[str, Any]) -> dict[str, Any]:
        found = self.cloud.schedules.get(params["name"])
        if found is None:
            raise CloudError(ErrorKind.ABSENT, "NotFound", params["name"])
        return {"name": params["name"], "target": found["target"], "at": f"{found['at']:{AT}}"}

    def _delete_schedule(self, params: dict[str, Any]) -> dict[str, Any]:
        found = self.cloud.schedules.pop(params["name"], None)
        if found is None:
            raise CloudError(ErrorKind.ABSENT, "NotFound", params["name"])
        for one in self.cloud.alive():
            one.disarmed |= one.id == found["target"]
        return {}

    def _get_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.rented[params["id"]]
        self.cloud.alive()
        if one.ended is not None:
            raise CloudError(ErrorKind.SPENT_TOKEN, "Ended", one.id)
        return {"state": "running"}

    def _end_machine(self, params: dict[str, Any]) -> dict[str, Any]:
        one = self.cloud.rented[params["id"]]
        one.ended = one.ended or self.cloud.clock.true_time()
        return {}

    def missing(self) -> str:
        return ""

    def cloud_time(self) -> datetime | None:
        return self.cloud.clock.true_time()

    def _asked(self, question: str) -> None:
        """Let what was ordered for a question happen before it is answered."""
        self.before_send(question)
        when, kind = (self.cloud.faults.get(question) or [("", None)]).pop(0)
        if kind is not None:
            raise CloudError(kind, kind.name, f"on request, {when}")

    def look(self, machine: MachineRef) -> CloudMachine | None:
        self._asked("look")
        self._require_up(machine.region)
        self.cloud.alive()
        one = self.cloud.rented.get(machine.id)
        return self._machine(one) if one is not None and self._is_visible(one) else None

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """List region by region; those in `down` do not answer."""
        self._asked("list")
        places = {region: partial(self._machines_in, region) for region in regions or self.cloud.regions}
        answers, failed = ask_places(places)
        return Listing(machines=tuple(chain(*answers.values())), failed=failed, answered=tuple(answers))

    def _machines_in(self, region: str) -> list[CloudMachine]:
        self._require_up(region)
        if region in self.cloud.down:
            raise CloudError(ErrorKind.UNKNOWN, "Down", region)
        return [
            self._machine(one)
            for one in self.cloud.alive()
            if one.params["region"] == region and "gpuplan-run" in one.tags and self._is_visible(one)
        ]

    def _require_up(self, region: str) -> None:
        if region in self.cloud.out_of_reach:
            raise CloudError(ErrorKind.UNKNOWN, "OutOfReach", region)

    def _is_visible(self, one: Rented) -> bool:
        age = self.cloud.clock.true_time() - one.started
        return age >= timedelta(seconds=self.cloud.invisible_s)

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """List groups and schedules; a region out of reach is a failure, one that is down lists these."""
        self._asked("leftovers")
        failed = {
            region: CloudError(ErrorKind.UNKNOWN, "Down", region)
            for region in regions or self.cloud.regions
            if region in self.cloud.out_of_reach
        }
        made = [
            *(("group", "delete_group", {"id": one}, tags) for one, tags in self._group_tags()),
            *(
                ("schedule", "delete_schedule", {"name": name}, one["tags"])
                for name, one in self.cloud.schedules.items()
            ),
        ]
        return [_leftover(*one) for one in made if one[3]["region"] not in failed], failed

    def _group_tags(self) -> list[tuple[str, dict[str, str]]]:
        return [(identity, self.cloud.group_tags[identity]) for identity in self.cloud.groups]

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        self._asked("price")
        price = self.cloud.prices.get(candidate.region, candidate.usd_per_hour)
        return LivePrice(usd_per_hour=price, source="fake prices", read_at=self.cloud.clock.true_time())

    def _machine(self, one: Rented) -> CloudMachine:
        tags = one.tags
        return CloudMachine(
            id=one.id,
            provider="fake",
            region=one.params["region"],
            instance_type=one.params["type"],
            purchase="on_demand",
            state="running" if one.ended is None else "ended",
            started_at=one.started,
            seen_at=self.cloud.clock.true_time(),
            **parse_tags(tags, started_at=one.started),
        )

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        return None

    def console(self, machine: MachineRef) -> str:
        return self.cloud.consoles.get(machine.id, "")


MACHINE = {"$ref": "machine.id"}
AT = "%Y-%m-%dT%H:%M:%S"


def _call(candidate: LaunchCandidate, step: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
    """Return a call of the fake service in a candidate's region."""
    return Call(step=step, service="fake", operation=operation, region=candidate.region, params=params, **more)


def _own_tags(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> dict[str, str]:
    """Return the tags of a side resource: a machine's, and the region."""
    return {**build_tags(request=request, number=number, candidate=candidate), "region": candidate.region}


def _group_call(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> Call:
    """Return the call that makes the group of an attempt."""
    name = build_resource_name(request, number)
    tags = _own_tags(request, candidate, number)
    return _call(
        candidate,
        "group",
        "create_group",
        {"name": name, "tags": tags},
        makes="resource",
        keeps={"id": "id"},
        find=_call(candidate, "group", "find_group", {"name": name}, keeps={"id": "id"}),
        undo=(_call(candidate, "group", "delete_group", {"id": {"$ref": "group.id"}}),),
    )


def _machine_call(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> Call:
    """Return the call that makes the machine; its guest sets a timer once it has booted."""
    token = build_token(request=request, number=number, candidate=candidate, zone=None)
    params = {
        "token": token, "type": candidate.instance_type, "region": candidate.region, "group": {"$ref": "group.id"},
        "timer_s": candidate.cap_s, "tags": build_tags(request=request, number=number, candidate=candidate),
    }  # fmt: skip
    return _call(
        candidate,
        "machine",
        "create_machine",
        params,
        makes="machine",
        token=token,
        keeps={"id": "id", "started": "started"},
    )


def _schedule_calls(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> tuple[Call, ...]:
    """Return the calls that have the cloud end the machine at its cap, and that read this back."""
    name = build_resource_name(request, number)
    at = {"$time": {"from": "machine.started", "plus_s": candidate.cap_s + SLACK_S, "format": AT}}
    proof = {"name": name, "target": MACHINE, "at": at}
    find = _call(candidate, "cap", "get_schedule", {"name": name}, expects=proof)
    return (
        _call(
            candidate,
            "cap",
            "create_schedule",
            {**proof, "tags": _own_tags(request, candidate, number)},
            makes="resource",
            find=find,
            undo=(_call(candidate, "cap", "delete_schedule", {"name": name}),),
        ),
        _call(candidate, "cap-armed", "get_schedule", {"name": name}, expects=proof, patience_s=60, arms="cap"),
    )


def _leftover(kind: str, operation: str, params: dict[str, Any], tags: dict[str, str]) -> Leftover:
    """Return a side resource with the call that removes it."""
    undo = Call(step=kind, service="fake", operation=operation, region=tags["region"], params=params)
    return Leftover(
        kind=kind,
        id=str(next(iter(params.values()))),
        region=tags["region"],
        run=tags["gpuplan-run"],
        attempt=int(tags["gpuplan-attempt"]),
        owner=tags["gpuplan-owner"],
        undo=(undo,),
    )


def candidate(
    region: str = "here", instance_type: str = "big", usd_per_hour: str = str(USD_PER_HOUR)
) -> LaunchCandidate:
    """Return an offer whose run takes about half an hour."""
    return LaunchCandidate(
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

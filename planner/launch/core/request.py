"""Launch request: candidates in order, the run and its limits; names, tags and tokens derived from it."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from ...limits import MAX_AMOUNT
from ...plan.memory import describe_changes
from ...predict.sharding import Sharding, describe_sharding, read_sharding
from ...predict.step_time import join_notes
from .api_call import Data
from .shell import find_pinned_packages

CHECKPOINT_EVERY_S = 60.0  # default, unless the user or the plan sets it [s]
SHORTEST_CHECKPOINT_S = 1.0
SHORTEST_CAP_S = 120  # timers count in minutes
LONGEST_CAP_S = 30 * 24 * 3600

_Run = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,15}(-[1-9][0-9]{0,5})?$")]
_Owner = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
_Label = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9-]{0,62})?$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+:-]{0,99}( \[[a-z]+\])?$")]
_Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=2000)]
_Source = Annotated[
    str, StringConstraints(pattern=r"^(folder:/|(git|s3|gs|image):)[^\x00-\x1f\x7f]*$", max_length=2000)
]
_Pin = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
_Shard = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,20}(:[1-9][0-9]{0,3})?$")]
_Usd = Annotated[Decimal, Field(ge=0, le=10**6)]
_Time = Annotated[float, Field(ge=0, le=10**10)]
_Count = Annotated[int, Field(ge=1, le=10**5)]


class Seconds(Data):
    """An 80 % interval of a time [s]."""

    low: _Time
    mid: _Time
    high: _Time


class Interruptions(Data):
    """Expected preemptions of a spot machine: `offers[].spot` of the estimate; `basis`: source of the life."""

    life_s: float  # mean time to preemption [s]
    basis: _Line
    notice_s: float | None  # preemption notice of the provider; None: unknown [s]
    count: float  # mean number of preemptions during the run [-]
    # checkpoint_every_s, checkpoint_s: interval and duration of checkpoints in the estimate [s]
    checkpoint_every_s: float
    checkpoint_s: float


class LaunchCandidate(Data):
    """An offer of the estimate, with its cap."""

    rank: _Count  # rank in the estimate, from 1
    instance_type: _Name
    accelerator: _Name
    devices: Annotated[float, Field(gt=0, le=10**5)]
    region: _Name
    purchase: Literal["on_demand", "spot"]
    usd_per_hour: _Usd
    price_as_of: _Line | None
    # run_s, step_s: time of all steps, and of one; None: unknown
    run_s: Seconds | None
    step_s: Seconds | None
    # maximum time from the start of billing to the order to end [s]
    cap_s: Annotated[int, Field(ge=SHORTEST_CAP_S, le=LONGEST_CAP_S)]
    spot: Interruptions | None = None  # none on demand, and where the estimate has none
    # price in the estimate, if `usd_per_hour` was read since; None: the same [USD/h]
    planned_usd_per_hour: _Usd | None = None
    # price_source, price_problem: where the price was read for this launch, or why it could not be; else empty
    price_source: _Line = ""
    price_problem: _Line = ""
    shard: _Shard = str(Sharding.NONE)
    micro_batch_size: _Count | None = None  # samples of a pass on one device; None for the whole batch [-]
    gradient_accumulation_steps: _Count = 1  # passes per optimizer update [-]
    recomputed: bool = False  # whether layers have to recompute their activations so that the step fits

    def describe_layout(self, *, hosts: int = 1) -> str:
        """Describe the sharding and the changes that the script needs, in one line; empty without any."""
        sharded = describe_sharding(read_sharding(self.shard), devices=self.devices, hosts=hosts)
        changes = describe_changes(
            micro_batch_size=self.micro_batch_size,
            accumulation_steps=self.gradient_accumulation_steps,
            recomputed=self.recomputed,
        )
        return join_notes(sharded, changes)


class StopLoss(Data):
    """Reaction to first steps that are outside the predicted interval by more than a factor.

    `warn` writes to the log and the status, `stop` also ends the run. `steps` follow those that compile.
    """

    action: Literal["off", "warn", "stop"] = "warn"
    steps: _Count = 50
    factor: Annotated[float, Field(ge=1, le=1000)] = 2.0


class RunSpec(Data):
    """Script to run, within its source."""

    script: _Line
    arguments: tuple[str, ...] = ()
    # `folder:PATH`, `git:URL@REF`, `s3:BUCKET/KEY`, `gs:…`, or `image:NAME` (the code is in it, below the image's
    # own working folder)
    source: _Source
    # requirements file within the source; without one, the pinned packages are installed
    requirements: _Line | None = None
    # checkpoint interval: the maximum work that a crash can lose [s]
    checkpoint_every_s: Annotated[float, Field(ge=SHORTEST_CHECKPOINT_S, le=LONGEST_CAP_S)] = CHECKPOINT_EVERY_S
    # number of restarts of a crashed run on the same machine [-]
    restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    stop_loss: StopLoss = StopLoss()
    packages: tuple[_Pin, ...] = Field(default_factory=find_pinned_packages)


class LaunchRequest(Data):
    """Complete input of planning: the same request gives the same plan."""

    run: _Run  # name of the run, unique within the ledger; part of all names and tags
    # number of the first attempt; above 1 when a run continues on another machine
    attempt: Annotated[int, Field(ge=1, le=10**4)] = 1
    owner: _Owner  # id of the installation that owns the machines; machines of other owners are never changed
    made_at: AwareDatetime
    provider: _Name
    # candidates in the order in which they are tried
    candidates: Annotated[tuple[LaunchCandidate, ...], Field(min_length=1, max_length=10**4)]
    spec: RunSpec
    # max_usd, spent_usd: maximum cost of the whole run, and of its past attempts [USD]
    max_usd: Annotated[Decimal, Field(gt=0, le=MAX_AMOUNT)] | None = None
    spent_usd: _Usd = Decimal(0)
    options: dict[_Name, _Line] = Field(default_factory=dict)
    guest_cap_only: bool = False  # whether the user accepts a machine without a cap outside it
    owner_name: _Label = ""
    # what was not proven of means for the cap that the user gave; None: not looked at
    cap_problem: _Line | None = None


TAG_RUN = "gpuplan-run"
TAG_OWNER_NAME = "gpuplan-owner-name"
MICRO = Decimal(10) ** 6
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gpuplan.launch")


def build_token(*, request: LaunchRequest, number: int, candidate: LaunchCandidate, zone: str | None) -> str:
    """Return the idempotency token of an attempt: a UUID derived from its identity.

    Region, zone, type and purchase option are part of it, because clouds compare a token within a region or
    a zone only and refuse it with other parameters
    (docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html).
    """
    parts = (
        request.owner, request.run, str(number), candidate.region, zone or "", candidate.instance_type,
        candidate.purchase,
    )  # fmt: skip
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))


def build_resource_name(request: LaunchRequest, number: int) -> str:
    """Return the name of an attempt's resources: lower case, digits and hyphens, below 63 characters."""
    return f"gpuplan-{request.run}-{number}"


def build_tags(*, request: LaunchRequest, number: int, candidate: LaunchCandidate) -> dict[str, str]:
    """Return the tags of the call that makes a machine, in characters that every cloud accepts.

    The cap is a duration from the machine's start by the cloud's clock, independent of this computer's clock.
    """
    label = {TAG_OWNER_NAME: request.owner_name} if request.owner_name else {}
    return {
        TAG_RUN: request.run,
        "gpuplan-attempt": str(number),
        "gpuplan-owner": request.owner,
        **label,
        "gpuplan-cap-s": str(candidate.cap_s),
        "gpuplan-microusd-per-hour": str(int(candidate.usd_per_hour * MICRO)),
    }


def build_run_name(fingerprint: str, sequence: int) -> str:
    """Return the name of a run: its plan's hash and a sequence number.

    Example:
        >>> build_run_name("plan", 1)
        'r64879f7d-1'
    """
    return f"r{hashlib.sha256(fingerprint.encode()).hexdigest()[:8]}-{sequence}"


def build_safe_name(text: str) -> str:
    """Return a text from a cloud as a folder name: letters, digits and hyphens.

    Example:
        >>> build_safe_name("r64879f7d-1"), build_safe_name("../../x")
        ('r64879f7d-1', 'x')
    """
    return re.sub(r"[^A-Za-z0-9-]+", "-", text).strip("-")


def parse_owner_tags(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return run, attempt and owner of a resource; empty or 0 without a tag.

    Example:
        >>> parse_owner_tags({"gpuplan-run": "r1", "gpuplan-attempt": "2"})
        {'run': 'r1', 'attempt': 2, 'owner': ''}
    """
    number = tags.get("gpuplan-attempt", "")
    return {
        "run": tags.get(TAG_RUN, ""),
        "attempt": int(number) if number.isdecimal() else 0,
        "owner": tags.get("gpuplan-owner", ""),
    }


def parse_tags(tags: Mapping[str, str], *, started_at: datetime, wait_s: float = 0.0) -> dict[str, Any]:
    """Return the fields of a `CloudMachine` that its tags contain.

    `started_at` is its start by the cloud's clock, `wait_s` the longest time from there to the cap's start [s].
    """
    cap_s, price = tags.get("gpuplan-cap-s", ""), tags.get("gpuplan-microusd-per-hour", "")
    cap_from = started_at + timedelta(seconds=wait_s)
    return {
        **parse_owner_tags(tags),
        "owner_name": tags.get(TAG_OWNER_NAME, ""),
        "usd_per_hour": Decimal(price) / MICRO if price.isdecimal() else None,
        "cap_from": cap_from,
        "cap_at": cap_from + timedelta(seconds=int(cap_s)) if cap_s.isdecimal() and len(cap_s) < 10 else None,
    }

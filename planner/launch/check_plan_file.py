"""Validate a launch plan that was read from a file: untrusted input, checked against the typed flags.

Only its request is used; the rest must equal the plan that the request gives on this computer now.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints, ValidationError

from ..errors import UsageError
from ..predict.sharding import read_sharding
from .arguments import LaunchArgs, parse_source
from .clouds import LAUNCHABLE
from .core.history import History
from .core.launch_plan import SHORTEST_CAP_S, LaunchPlan
from .core.request import LaunchCandidate, LaunchRequest, RunSpec, Seconds, StopLoss
from .core.upload import require_inside, require_sendable
from .planning import PLAN_AGAIN

LONGEST_CAP_S = 30 * 24 * 3600
CLOCK_TOLERANCE = timedelta(minutes=5)  # between two computers with NTP, with a margin
MOST_USD = Decimal(10) ** 6

Run = Annotated[str, StringConstraints(pattern=r"^r[0-9a-f]{8}-[1-9][0-9]{0,5}$")]
Owner = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
Label = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9-]{0,62})?$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,99}$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=2000)]
Place = Annotated[str, StringConstraints(pattern=r"^(folder|git|s3|gs|image):[^\x00-\x20\x7f]+$", max_length=2000)]
FolderPlace = Annotated[str, StringConstraints(pattern=r"^folder:/[^\x00-\x1f\x7f]*$", max_length=2000)]
Pinned = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
Shard = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,20}(:[1-9][0-9]{0,3})?$")]
Usd = Annotated[Decimal, Field(ge=0, le=MOST_USD, allow_inf_nan=False)]
PastSeconds = Annotated[float, Field(ge=0, le=10**10, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**5)]


class _CheckedSeconds(Seconds):
    low: PastSeconds
    mid: PastSeconds
    high: PastSeconds


class _CheckedCandidate(LaunchCandidate):
    rank: Count
    instance_type: Name
    accelerator: Name
    devices: Annotated[float, Field(gt=0, le=4096, allow_inf_nan=False)]
    region: Name
    usd_per_hour: Usd
    planned_usd_per_hour: Usd | None = None
    run_s: _CheckedSeconds | None
    step_s: _CheckedSeconds | None
    cap_s: Annotated[int, Field(ge=SHORTEST_CAP_S, le=LONGEST_CAP_S)]
    shard: Shard = "none"
    micro_batch_size: Count | None = None
    gradient_accumulation_steps: Count = 1


class _CheckedStopLoss(StopLoss):
    steps: Count = 50
    factor: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 2.0


class _CheckedSpec(RunSpec):
    script: Line
    source: Place | FolderPlace
    requirements: Line | None = None
    checkpoint_every_s: Annotated[float, Field(ge=1, le=LONGEST_CAP_S, allow_inf_nan=False)]
    restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    stop_loss: _CheckedStopLoss = _CheckedStopLoss()
    packages: tuple[Pinned, ...] = ()


class _CheckedRequest(LaunchRequest):
    run: Run
    attempt: Annotated[int, Field(ge=1, le=10**4)] = 1
    owner: Owner
    owner_name: Label = ""
    made_at: AwareDatetime
    provider: Literal[LAUNCHABLE]  # type: ignore[valid-type]
    candidates: Annotated[tuple[_CheckedCandidate, ...], Field(min_length=1, max_length=100)]
    spec: _CheckedSpec
    max_usd: Annotated[Usd, Field(gt=0)] | None = None
    spent_usd: Usd = Decimal(0)
    options: dict[Name, Line] = Field(default_factory=dict)


def read_launch_plan(path: Path) -> LaunchPlan:
    """Return a launch plan from its file.

    Raises:
        UsageError: It is not a launch plan, or a value is not one that gpuplan writes.
    """
    try:
        plan = LaunchPlan.model_validate_json(path.read_bytes(), strict=True)
        _CheckedRequest.model_validate_json(plan.request.model_dump_json(), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]).encode("unicode_escape").decode()
        raise UsageError(
            f"{path} is not a valid launch plan of this version: `{where}`: {first['msg']}", hint=PLAN_AGAIN
        ) from error
    for one in plan.request.candidates:
        read_sharding(one.shard, where=f"{path}: shard")
    return plan


def require_sound(
    plan: LaunchPlan, args: LaunchArgs, *, owner: str, history: History | None, now: datetime
) -> None:
    """Raise UsageError unless this installation can have made a plan's request for its present state.

    Args:
        plan: The plan as read.
        args: The typed flags.
        owner: Owner of this installation.
        history: History of the plan's run; None when the plan is the recorded one that is continued.
        now: Time by this computer's clock.
    """
    request, spec = plan.request, plan.request.spec
    if request.owner != owner:
        raise UsageError(
            f"{args.path} was made by installation `{request.owner}`, and this is `{owner}`",
            hint=f"move the estimate, not the launch plan: {PLAN_AGAIN}",
        )
    if request.made_at > now + CLOCK_TOLERANCE:
        raise UsageError(
            f"{args.path} has a time in the future: {request.made_at:%Y-%m-%d %H:%M} UTC", hint=PLAN_AGAIN
        )
    expected = history and (history.next_attempt, history.spent_at_most_usd)
    if expected and (request.attempt, request.spent_usd) != expected:
        raise UsageError(f"run `{request.run}` has changed since {args.path} was made", hint=PLAN_AGAIN)
    require_inside(spec.script, what="`script`")
    if spec.requirements:
        require_inside(spec.requirements, what="`requirements`")
    kind, _, place = spec.source.partition(":")
    if kind == "folder":
        _require_near(Path(place), args)


def require_as_typed(plan: LaunchPlan, args: LaunchArgs) -> None:
    """Raise UsageError for a typed flag that contradicts the plan."""
    request, spec = plan.request, plan.request.spec
    fixed: dict[str, tuple[object, object]] = {
        "--rank": (args.rank, request.candidates[0].rank),
        "--script": (args.script, spec.script),
        "--source": (args.source and parse_source(args.source), spec.source),
        "--name": (args.name or None, None),
        "-- ARGS": (args.arguments or None, spec.arguments),
        **{f"-O {name}": (value, request.options.get(name)) for name, value in args.options.items()},
    }
    for flag, (typed, planned) in fixed.items():
        if typed is not None and typed != planned:
            raise UsageError(
                f"`{flag}` contradicts the launch plan, which has {planned!r}",
                hint=f"leave the flag out, or {PLAN_AGAIN}",
            )


def _require_near(folder: Path, args: LaunchArgs) -> None:
    """Raise UsageError unless a folder was typed or is within the current folder, and is not a home folder."""
    require_sendable(folder)
    typed = args.source is not None and parse_source(args.source) == f"folder:{folder}"
    real, here = folder.resolve(), Path.cwd().resolve()
    if real != folder or not (typed or real == here or here in real.parents):
        raise UsageError(
            f"the source of {args.path} is {folder}, which is not in the current folder",
            hint=f"to use it, add `--source {folder}`",
        )

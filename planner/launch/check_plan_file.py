"""Validate a launch plan that was read from a file: untrusted input, checked against the typed flags.

Only its request is used; the rest must equal the plan that the request gives on this computer now.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from ..errors import UsageError
from ..predict.sharding import read_sharding
from .arguments import LaunchArgs
from .core.api_call import refusing
from .core.history import History
from .core.launch_plan import LaunchPlan
from .core.upload import require_inside, require_sendable
from .planning import PLAN_AGAIN

CLOCK_TOLERANCE = timedelta(minutes=5)  # between two computers with NTP, with a margin


def read_launch_plan(path: Path) -> LaunchPlan:
    """Return a launch plan from its file; UsageError unless all of its values are ones that gpuplan writes."""
    with refusing(f"{path} is not a valid launch plan of this version", hint=PLAN_AGAIN):
        plan = LaunchPlan.model_validate_json(path.read_bytes(), strict=True)
    for one in plan.request.candidates:
        read_sharding(one.shard, where=f"{path}: shard")
    return plan


def require_sound(
    plan: LaunchPlan, args: LaunchArgs, *, owner: str, history: History | None, now: datetime
) -> None:
    """Raise UsageError unless this installation can have made a plan's request for its present state.

    `history` is that of the plan's run; None when the plan is the recorded one that is continued.
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
    """Raise UsageError for a typed flag that contradicts the plan, and for another's bucket that was not typed."""
    request, spec = plan.request, plan.request.spec
    fixed: dict[str, tuple[object, object]] = {
        "--rank": (args.rank, request.candidates[0].rank),
        "--script": (args.script, spec.script),
        "--source": (args.source and args.full_source, spec.source),
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
    bucket, foreign = request.options.get("bucket"), request.options.get("bucket_owner")
    if foreign and "bucket_owner" not in args.options:
        raise UsageError(
            f"{args.path} sends code and results to `{bucket}`, a bucket of account {foreign}",
            hint=f"if you trust that account, add `-O bucket_owner={foreign}`",
        )


def _require_near(folder: Path, args: LaunchArgs) -> None:
    """Raise UsageError unless a folder was typed or is within the current folder, and is not a home folder."""
    require_sendable(folder)
    typed = args.source is not None and args.full_source == f"folder:{folder}"
    real, here = folder.resolve(), Path.cwd().resolve()
    if real != folder or not (typed or real == here or here in real.parents):
        raise UsageError(
            f"the source of {args.path} is {folder}, which is not in the current folder",
            hint=f"to use it, add `--source {folder}`",
        )

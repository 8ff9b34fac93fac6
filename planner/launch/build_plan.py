"""Build a launch plan from typed flags, estimate, catalog and ledger; check one that was read from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path

from ..errors import NoAnswerError, UsageError
from ..files import get_data_folder
from ..offers.catalog import Catalog
from ..offers.local import probe_local_offer
from ..owner import load_or_create_owner, read_user_label
from ..plan.request import parse_duration_s
from ..predict.sharding import read_sharding
from ..settings import Settings, get_state_folder
from ..units import SECONDS_PER_HOUR
from .arguments import LaunchArgs
from .core.api_call import refusing
from .core.clock import Clock
from .core.history import History
from .core.launch_plan import LaunchEvent, LaunchPlan
from .core.ledger import Ledger
from .core.request import (
    CHECKPOINT_EVERY_S,
    SHORTEST_CHECKPOINT_S,
    LaunchCandidate,
    LaunchRequest,
    RunSpec,
    StopLoss,
)
from .core.shell import find_pinned_packages
from .core.upload import require_inside, require_sendable
from .planning import PLAN_AGAIN, apply_cap, make_plan, require_outer_cap, require_unedited
from .reports import find_report
from .select_offer import (
    ESTIMATE_LIFE,
    LAUNCH_LIFE,
    EstimateOffers,
    Renter,
    add_live_prices,
    filter_affordable,
    read_estimate,
    require_fresh,
    require_known_prices,
    select_candidates,
)
from .service import Launcher

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


def create_launcher(
    settings: Settings, *, notify: Callable[[LaunchEvent], None], owner: str | None = None
) -> Launcher:
    """Return the launcher of this installation, or of one that ends another owner's machines."""
    state_dir = get_state_folder(settings)
    clock = Clock()
    ledger = Ledger(
        state_dir,
        owner=load_or_create_owner(get_data_folder(settings.data_dir)),
        clock=clock,
        owner_name=settings.owner or read_user_label(),
    )
    return Launcher(ledger=ledger, state_dir=state_dir, clock=clock, notify=notify, owner=owner)


@refusing("this cannot be launched", hint="correct that flag or setting")
def build_launch_plan(args: LaunchArgs, launcher: Launcher, *, catalog: Catalog, look: bool) -> LaunchPlan:
    """Return the requested launch plan, within the typed limits.

    With `look`, the provider is queried: for a recorded machine of the same run, and for current prices.

    Raises:
        UsageError, NoAnswerError: The request cannot be launched; see each check.
    """
    planned = read_estimate(args.path)
    request = _of_file(args, launcher) if planned is None else _of_estimate(args, planned, launcher, look=look)
    if isinstance(request, LaunchPlan):
        return _continued(request, args, launcher)
    adapter, options = launcher.adapter(request.provider), request.options
    candidates = request.candidates
    request = request.changed(cap_problem=adapter.find_cap_problem(request) if look else None)
    if look:
        limited = args.max_usd is not None or request.max_usd is not None
        candidates = add_live_prices(candidates, adapter, options, limited=limited)
        require_known_prices(
            candidates,
            provider=request.provider,
            offers=(*catalog.offers, probe_local_offer(catalog)[0]),
            today=launcher.clock.now().date(),
            accept_old=args.settings.accept_old_prices,
        )
    most_usd = min((one for one in (args.most_usd, request.max_usd) if one is not None), default=None)
    left_usd = None if most_usd is None else most_usd - request.spent_usd
    fitting: list[LaunchCandidate] = []
    for one in filter_affordable(candidates):
        terms = adapter.compute_cost_bounds(one, options)
        with suppress(NoAnswerError) if fitting else nullcontext():  # fallbacks that exceed the limits are dropped
            fitting.append(
                apply_cap(one, terms, max_hours=args.max_hours, max_usd=left_usd, is_planned=planned is None)
            )
    guest_cap_only = args.settings.guest_cap_only
    request = request.changed(candidates=tuple(fitting), max_usd=most_usd, guest_cap_only=guest_cap_only)
    plan = make_plan(request, adapter)
    require_outer_cap(plan, adapter)
    return plan


def _of_file(args: LaunchArgs, launcher: Launcher) -> LaunchRequest | LaunchPlan:
    """Return the request of a launch plan's file, or the recorded plan to continue."""
    plan = read_launch_plan(args.path)
    now, history = launcher.clock.now(), launcher.ledger.peek(plan.run)
    begun = _begun(history)
    require_sound(plan, args, owner=launcher.ledger.owner, history=None if begun == plan else history, now=now)
    require_fresh(what=f"the launch plan {args.path}", made_at=plan.request.made_at, now=now, life=LAUNCH_LIFE)
    require_as_typed(plan, args)
    require_unedited(plan, launcher.adapter(plan.request.provider))
    return begun or plan.request


def _of_estimate(
    args: LaunchArgs, planned: EstimateOffers, launcher: Launcher, *, look: bool
) -> LaunchRequest | LaunchPlan:
    """Return the request for an estimate's offers, or the recorded plan to continue."""
    now, ledger = launcher.clock.now(), launcher.ledger
    require_fresh(what=str(args.path), made_at=planned.written_at, now=now, life=ESTIMATE_LIFE)
    renter = Renter(image=args.options.get("image", ""))
    provider, candidates = select_candidates(planned, renter, rank=args.rank, fallbacks=args.settings.fallbacks)
    first = candidates[0]
    spec = build_run_spec(args, planned, first)
    kind, _, place = spec.source.partition(":")
    if kind == "folder" and launcher.adapter(provider).remote:
        require_sendable(Path(place))
    # The identity of a run: its script and machine, not its limits.
    fingerprint = json.dumps([
        args.name, provider, spec.script, *spec.arguments, spec.source, first.instance_type, first.region,
        first.purchase,
    ])  # fmt: skip
    run = ledger.next_run(fingerprint)
    if look and launcher.refresh(run):
        run = ledger.next_run(fingerprint)
    history = ledger.peek(run)
    return _begun(history) or LaunchRequest(
        run=run,
        attempt=history.next_attempt,
        owner=ledger.owner,
        owner_name=ledger.owner_name,
        made_at=now,
        provider=provider,
        candidates=candidates,
        spec=spec,
        spent_usd=history.spent_at_most_usd,
        options=dict(args.options),
    )


def _begun(history: History) -> LaunchPlan | None:
    """Return the recorded plan whose attempt is not over, or None."""
    current = history.current()
    return None if current is None or current.is_over or history.finished else current.plan


def _continued(plan: LaunchPlan, args: LaunchArgs, launcher: Launcher) -> LaunchPlan:
    """Return a plan in progress; NoAnswerError unless it keeps the typed limits: it cannot change."""
    request = plan.request
    hint = f"`gpuplan stop {request.run}` ends it; then launch again"
    most = plan.worst_case_usd + request.spent_usd
    if args.most_usd is not None and most > args.most_usd:
        raise NoAnswerError(
            f"run `{request.run}` is in progress and may cost ${most:.2f}, and `--max-usd` is ${args.most_usd}",
            hint=hint,
        )
    longest_s = max(one.cap_s for one in request.candidates)
    if args.max_hours is not None and longest_s > args.max_hours * SECONDS_PER_HOUR:
        raise NoAnswerError(
            f"run `{request.run}` is in progress with a cap of {longest_s / SECONDS_PER_HOUR:.2f} h, and "
            f"`--max-hours` is {args.max_hours:g}",
            hint=hint,
        )
    current = launcher.ledger.peek(plan.run).current()
    if current is not None and not current.has("up"):  # the cloud may have forgotten the tokens of its calls
        what, now = f"the plan of run `{plan.run}`", launcher.clock.now()
        require_fresh(what=what, made_at=request.made_at, now=now, life=LAUNCH_LIFE)
    return plan


def find_early_end(plan: LaunchPlan, launcher: Launcher) -> str | None:
    """Return why the last machine of a plan's run, or of the run before it, ended before it trained.

    None if it trained, and while a machine of the run is up.
    """
    if _begun(launcher.ledger.peek(plan.run)):
        return None
    stem, _, sequence = plan.run.rpartition("-")
    for run in (plan.run, f"{stem}-{int(sequence or 1) - 1}"):
        report = find_report(launcher.ledger.peek(run).records)
        if report is not None:
            lines = [line for line in report.log.split("\n") if line.strip()]
            return f"{report.stage}: {(lines or ['the reason is unknown'])[-1]}" if report.failed else None
    return None


def build_run_spec(args: LaunchArgs, planned: EstimateOffers, first: LaunchCandidate | None = None) -> RunSpec:
    """Return the script to run: the estimate's, or the one of `--script`.

    On a spot machine the checkpoint interval is the estimate's unless the user sets one.
    """
    script, settings = args.script or planned.model, args.settings
    if not script.endswith(".py"):
        raise UsageError(
            f"{planned.path} is an estimate of `{planned.model}`, which is not a script",
            hint="give a script: `--script train.py`",
        )
    every_s = CHECKPOINT_EVERY_S
    if settings.checkpoint_every:
        every_s = parse_duration_s(settings.checkpoint_every, flag="checkpoint_every")
    elif first and first.spot:
        every_s = max(SHORTEST_CHECKPOINT_S, first.spot.checkpoint_every_s)
    source = args.full_source
    kind, _, place = source.partition(":")
    if kind == "folder" and Path(script).is_absolute() and Path(script).is_relative_to(place):
        script = str(Path(script).relative_to(place))
    return RunSpec(
        script=script,
        arguments=args.arguments,
        source=source,
        requirements=settings.requirements or None,
        checkpoint_every_s=every_s,
        stop_loss=StopLoss(action=settings.stop_loss),
        packages=find_pinned_packages(planned.versions),
    )

"""Build a launch plan from the typed flags, the estimate, the catalog and the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from ..errors import NoAnswerError, UsageError
from ..files import get_data_folder
from ..offers.catalog import Catalog
from ..offers.local import probe_local_offer
from ..owner import load_or_create_owner, read_user_label
from ..settings import Settings, get_state_folder
from ..units import SECONDS_PER_HOUR
from .arguments import LaunchArgs, parse_source
from .check_plan_file import read_launch_plan, require_as_typed, require_sound
from .clouds import LAUNCHABLE
from .core.clock import SystemClock
from .core.cloud_adapter import Adapter
from .core.history import History
from .core.launch_plan import LaunchEvent, LaunchPlan
from .core.ledger import Ledger
from .core.request import CHECKPOINT_EVERY_S, LaunchCandidate, LaunchRequest, RunSpec, StopLoss
from .core.shell import find_pinned_packages
from .core.upload import require_sendable
from .planning import apply_cap, make_plan, rebuild_plan, require_outer_cap
from .select_offer import (
    ESTIMATE_LIFE,
    LAUNCH_LIFE,
    EstimateOffers,
    add_image_problems,
    add_live_prices,
    filter_affordable,
    read_estimate,
    require_fresh,
    require_known_prices,
    select_candidates,
)
from .service import Launcher


def create_launcher(
    settings: Settings, *, notify: Callable[[LaunchEvent], None], owner: str | None = None
) -> Launcher:
    """Return the launcher of this installation.

    Args:
        settings: Folders, and the owner's name.
        notify: Receives each event.
        owner: Owner whose machines are ended by their tags; None: this installation.
    """
    state_dir = get_state_folder(settings)
    clock = SystemClock()
    ledger = Ledger(
        state_dir,
        owner=load_or_create_owner(get_data_folder(settings.data_dir)),
        clock=clock,
        owner_name=settings.owner or read_user_label(),
    )
    return Launcher(ledger=ledger, state_dir=state_dir, clock=clock, notify=notify, owner=owner)


def build_launch_plan(args: LaunchArgs, launcher: Launcher, *, catalog: Catalog, look: bool) -> LaunchPlan:
    """Return the requested launch plan, within the typed limits.

    Args:
        args: The flags.
        launcher: The ledger and the adapters.
        catalog: Catalog with refreshed and committed prices, by the user's settings.
        look: Whether to query the provider: for a recorded machine of the same run, and for current prices.
            A dry run does not.

    Raises:
        UsageError, NoAnswerError: The request cannot be launched; see each check.
    """
    planned = read_estimate(args.path)
    request, begun = (
        _of_file(args, launcher) if planned is None else _of_estimate(args, planned, launcher, look=look)
    )
    if begun is not None:
        _require_within(begun, args)
        current = launcher.ledger.peek(begun.run).current()
        if current is not None and not current.is_up:  # the cloud may have forgotten the tokens of its calls
            what, now = f"the plan of run `{begun.run}`", launcher.clock.now()
            require_fresh(what=what, made_at=begun.made_at, now=now, life=LAUNCH_LIFE)
        return begun
    adapter = launcher.adapter(request.provider)
    candidates = request.candidates
    problem = adapter.find_cap_problem(request) if look else None
    request = request.model_copy(update={"cap_problem": problem})
    if look:
        limited = args.max_usd is not None or request.max_usd is not None
        candidates = add_live_prices(candidates, adapter, request.options, limited=limited)
        require_known_prices(
            candidates,
            provider=request.provider,
            offers=(*catalog.offers, probe_local_offer(catalog)[0]),
            today=launcher.clock.now().date(),
            accept_old=args.accept_old_prices,
        )
    most_usd = min((one for one in (args.most_usd, request.max_usd) if one is not None), default=None)
    fitting = _capped(filter_affordable(candidates), args, request, adapter, most_usd=most_usd)
    plan = make_plan(
        request.model_copy(
            update={"candidates": fitting, "max_usd": most_usd, "guest_cap_only": args.guest_cap_only}
        ),
        adapter,
    )
    require_outer_cap(plan, adapter)
    return plan


def _of_file(args: LaunchArgs, launcher: Launcher) -> tuple[LaunchRequest, LaunchPlan | None]:
    """Return the request of a launch plan's file, and the recorded plan to continue, if any."""
    plan = read_launch_plan(args.path)
    now, history = launcher.clock.now(), launcher.ledger.peek(plan.run)
    begun = _begun(history)
    require_sound(plan, args, owner=launcher.ledger.owner, history=None if begun == plan else history, now=now)
    require_fresh(what=f"the launch plan {args.path}", made_at=plan.made_at, now=now, life=LAUNCH_LIFE)
    require_as_typed(plan, args)
    rebuild_plan(plan, launcher.adapter(plan.request.provider))
    return plan.request, begun


def _of_estimate(
    args: LaunchArgs, planned: EstimateOffers, launcher: Launcher, *, look: bool
) -> tuple[LaunchRequest, LaunchPlan | None]:
    """Return the request for an estimate's offers, and the recorded plan to continue, if any."""
    now = launcher.clock.now()
    require_fresh(what=str(args.path), made_at=planned.written_at, now=now, life=ESTIMATE_LIFE)
    planned = add_image_problems(planned, image=args.options.get("image", ""))
    provider, candidates = select_candidates(
        planned, launchable=LAUNCHABLE, rank=args.rank, fallbacks=args.fallbacks
    )
    spec = build_run_spec(args, planned, candidates[0])
    kind, _, place = spec.source.partition(":")
    if kind == "folder" and launcher.adapter(provider).remote:
        require_sendable(Path(place))
    fingerprint = _fingerprint(args, spec, provider, candidates[0])
    run = launcher.ledger.next_run(fingerprint)
    if look and launcher.refresh(run):
        run = launcher.ledger.next_run(fingerprint)
    history = launcher.ledger.peek(run)
    request = LaunchRequest(
        run=run,
        attempt=history.next_attempt,
        owner=launcher.ledger.owner,
        owner_name=launcher.ledger.owner_name,
        made_at=now,
        provider=provider,
        candidates=candidates,
        spec=spec,
        spent_usd=history.spent_at_most_usd,
        options=args.options,
    )
    return request, _begun(history)


def _begun(history: History) -> LaunchPlan | None:
    """Return the recorded plan whose attempt is not over, or None."""
    current = history.current()
    return None if current is None or current.is_over or history.finished else current.plan


def _require_within(plan: LaunchPlan, args: LaunchArgs) -> None:
    """Raise NoAnswerError unless a plan in progress keeps the typed limits: it cannot change."""
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


def _capped(
    candidates: tuple[LaunchCandidate, ...],
    args: LaunchArgs,
    request: LaunchRequest,
    adapter: Adapter,
    *,
    most_usd: Decimal | None,
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with caps; others than the first are dropped if they exceed the limits."""
    left = None if most_usd is None else most_usd - request.spent_usd
    fitting: list[LaunchCandidate] = []
    for candidate in candidates:
        try:
            fitting.append(
                apply_cap(candidate, adapter, options=request.options, max_hours=args.max_hours, max_usd=left)
            )
        except NoAnswerError:
            if not fitting:
                raise
    return tuple(fitting)


def build_run_spec(args: LaunchArgs, planned: EstimateOffers, first: LaunchCandidate | None = None) -> RunSpec:
    """Return the script to run: the estimate's, or the one of `--script`.

    On a spot machine the checkpoint interval is the estimate's unless the user sets one.
    """
    script = args.script or planned.model
    if not script.endswith(".py"):
        raise UsageError(
            f"{planned.path} is an estimate of `{planned.model}`, which is not a script",
            hint="give a script: `--script train.py`",
        )
    source = parse_source(args.source)
    every_s = args.checkpoint_every_s
    if every_s is None:
        every_s = first.spot.checkpoint_every_s if first and first.spot else CHECKPOINT_EVERY_S
    return RunSpec(
        script=_within(script, source),
        arguments=args.arguments,
        source=source,
        requirements=args.requirements,
        checkpoint_every_s=every_s,
        stop_loss=StopLoss(action=args.stop_loss),
        packages=find_pinned_packages(planned.versions),
    )


def _within(script: str, source: str) -> str:
    """Return the path of a script relative to its source folder."""
    kind, _, place = source.partition(":")
    path = Path(script)
    inside = kind == "folder" and path.is_absolute() and path.is_relative_to(place)
    return str(path.relative_to(place)) if inside else script


def _fingerprint(args: LaunchArgs, spec: RunSpec, provider: str, first: LaunchCandidate) -> str:
    """Return the identity of a run: its script and machine, not its limits."""
    parts = [args.name, provider, spec.script, *spec.arguments, spec.source]
    return json.dumps([*parts, first.instance_type, first.region, first.purchase])

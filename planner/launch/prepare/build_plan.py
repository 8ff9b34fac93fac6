"""From what a user typed to a launch plan: reads the estimate, the catalog and the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from ...errors import NoAnswerError, UsageError
from ...files import get_data_folder
from ...offers.catalog import Catalog
from ...offers.local import probe_local_offer
from ...owner import load_or_create_owner, read_user_label
from ...settings import Settings, get_state_folder
from ...units import SECONDS_PER_HOUR
from ..core.clock import SystemClock
from ..core.cloud_adapter import Adapter
from ..core.events import LaunchEvent
from ..core.history import History
from ..core.launch_plan import LaunchPlan
from ..core.ledger import Ledger
from ..core.providers import LAUNCHABLE
from ..core.request import CHECKPOINT_EVERY_S, LaunchCandidate, LaunchRequest, RunSpec, StopLoss
from ..core.service import Launcher
from .arguments import FALLBACKS, LaunchArgs, parse_source
from .check_plan_file import read_launch_plan, require_as_typed, require_sound
from .consent import require_outer_cap
from .freshness import ESTIMATE_LIFE, LAUNCH_LIFE, require_fresh
from .places import require_sendable
from .planning import apply_cap, make_plan, rebuild_plan
from .pricing import add_live_prices, filter_affordable, require_known_prices
from .select_offer import EstimateOffers, read_estimate, select_candidates

__all__ = ["build_launch_plan", "build_run_spec", "create_launcher"]


def create_launcher(
    settings: Settings, *, notify: Callable[[LaunchEvent], None], owner: str | None = None
) -> Launcher:
    """Return the launcher of this installation.

    Args:
        settings: Folders, and the owner's name.
        tell: Takes each event.
        owner: Whose machines are ended by their tags; None: this installation's.
    """
    state_dir = get_state_folder(settings)
    clock = SystemClock()
    ledger = Ledger(
        state_dir, owner=load_or_create_owner(get_data_folder(settings.data_dir)), clock=clock,
        owner_name=settings.owner or read_user_label(),
    )  # fmt: skip
    return Launcher(ledger=ledger, state_dir=state_dir, clock=clock, notify=notify, owner=owner)


def build_launch_plan(asked: LaunchArgs, launcher: Launcher, *, catalog: Catalog, look: bool) -> LaunchPlan:
    """Return the launch plan that was asked for, within the limits that were typed.

    Args:
        asked: The flags.
        launcher: The ledger and the adapters.
        catalog: With refreshed and committed prices, as the user's settings ask for it.
        look: Whether to ask the provider: about a machine of the same run that is on record, and about today's
            prices. A dry run does not.

    Raises:
        UsageError, NoAnswerError: What was asked cannot be launched; see each check.
    """
    planned = read_estimate(asked.path)
    request, begun = (
        _of_file(asked, launcher) if planned is None else _of_estimate(asked, planned, launcher, look=look)
    )
    if begun is not None:
        _require_within(begun, asked)
        _require_resumable(begun, launcher)
        return begun
    adapter = launcher.adapter(request.provider)
    candidates = request.candidates
    if look:
        limited = asked.max_usd is not None or request.max_usd is not None
        candidates = add_live_prices(candidates, adapter, request.options, limited=limited)
        require_known_prices(
            candidates, provider=request.provider, offers=(*catalog.offers, probe_local_offer(catalog)[0]),
            today=launcher.clock.now().date(), accept_old=asked.accept_old_prices,
        )  # fmt: skip
    ceilings = [one for one in (asked.most_usd, request.max_usd) if one is not None]
    most_usd = min(ceilings, default=None)
    fitting = _capped(filter_affordable(candidates), asked, request, adapter, most_usd=most_usd)
    plan = make_plan(
        request.model_copy(
            update={"candidates": fitting, "max_usd": most_usd, "guest_cap_only": asked.guest_cap_only}
        ),
        adapter,
    )
    require_outer_cap(plan, adapter)
    return plan


def _of_file(asked: LaunchArgs, launcher: Launcher) -> tuple[LaunchRequest, LaunchPlan | None]:
    """Return the request of a launch plan's file, and the plan on record that is to be gone on with."""
    plan = read_launch_plan(asked.path)
    now, history = launcher.clock.now(), launcher.ledger.peek(plan.run)
    begun = _begun(history)
    require_sound(
        plan, asked, owner=launcher.ledger.owner, history=None if begun == plan else history, now=now
    )
    require_fresh(what=f"the launch plan {asked.path}", made_at=plan.made_at, now=now, life=LAUNCH_LIFE)
    require_as_typed(plan, asked)
    rebuild_plan(plan, launcher.adapter(plan.request.provider))
    return plan.request, begun


def _of_estimate(
    asked: LaunchArgs, planned: EstimateOffers, launcher: Launcher, *, look: bool
) -> tuple[LaunchRequest, LaunchPlan | None]:
    """Return the request of an estimate's offers, and the plan on record that is to be gone on with."""
    now = launcher.clock.now()
    require_fresh(what=str(asked.path), made_at=planned.written_at, now=now, life=ESTIMATE_LIFE)
    fallbacks = FALLBACKS if asked.fallbacks is None else asked.fallbacks
    provider, candidates = select_candidates(
        planned, launchable=LAUNCHABLE, rank=asked.rank, fallbacks=fallbacks
    )
    spec = build_run_spec(asked, planned, candidates[0])
    kind, _, place = spec.source.partition(":")
    if kind == "folder" and launcher.adapter(provider).remote:
        require_sendable(Path(place))
    fingerprint = _fingerprint(asked, spec, provider, candidates[0])
    run = launcher.ledger.next_run(fingerprint)
    if look and launcher.refresh(run):
        run = launcher.ledger.next_run(fingerprint)
    history = launcher.ledger.peek(run)
    request = LaunchRequest(
        run=run, attempt=history.next_attempt, owner=launcher.ledger.owner,
        owner_name=launcher.ledger.owner_name, made_at=now, provider=provider, candidates=candidates, spec=spec,
        spent_usd=history.spent_at_most_usd, options=asked.options,
    )  # fmt: skip
    return request, _begun(history)


def _begun(history: History) -> LaunchPlan | None:
    """Return the plan on record whose attempt is not over; None when there is none."""
    current = history.current()
    return None if current is None or current.is_over or history.finished else current.plan


def _require_resumable(plan: LaunchPlan, launcher: Launcher) -> None:
    """Raise NoAnswerError when calls of a plan are still to be sent and their tokens may be forgotten by now."""
    current = launcher.ledger.peek(plan.run).current()
    if current is not None and not current.is_up:
        now = launcher.clock.now()
        require_fresh(what=f"the plan of run `{plan.run}`", made_at=plan.made_at, now=now, life=LAUNCH_LIFE)


def _require_within(plan: LaunchPlan, asked: LaunchArgs) -> None:
    """Raise NoAnswerError unless a plan that was begun keeps the limits that were typed: it is not changed."""
    request = plan.request
    hint = f"`gpuplan stop {request.run}` ends it; then launch again"
    most = plan.worst_case_usd + request.spent_usd
    if asked.most_usd is not None and most > asked.most_usd:
        raise NoAnswerError(
            f"run `{request.run}` was begun and may cost ${most:.2f}, and `--max-usd` is ${asked.most_usd}",
            hint=hint,
        )
    longest_s = max(one.cap_s for one in request.candidates)
    if asked.max_hours is not None and longest_s > asked.max_hours * SECONDS_PER_HOUR:
        raise NoAnswerError(
            f"run `{request.run}` was begun with a cap of {longest_s / SECONDS_PER_HOUR:.2f} h, and `--max-hours` "
            f"is {asked.max_hours:g}",
            hint=hint,
        )


def _capped(
    candidates: tuple[LaunchCandidate, ...],
    asked: LaunchArgs,
    request: LaunchRequest,
    adapter: Adapter,
    *,
    most_usd: Decimal | None,
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with their caps; the first must fit the limits, others that do not are left out."""
    left = None if most_usd is None else most_usd - request.spent_usd
    fitting: list[LaunchCandidate] = []
    for candidate in candidates:
        try:
            fitting.append(
                apply_cap(
                    candidate, adapter, options=request.options, max_hours=asked.max_hours, max_usd=left
                )
            )
        except NoAnswerError:
            if not fitting:
                raise
    return tuple(fitting)


def build_run_spec(
    asked: LaunchArgs, planned: EstimateOffers, first: LaunchCandidate | None = None
) -> RunSpec:
    """Return what runs: the plan's own script, or the one that was named.

    On a spot machine checkpoints are as far apart as the plan's bill assumes, unless the user says otherwise.
    """
    script = asked.script or planned.model
    if not script.endswith(".py"):
        raise UsageError(
            f"{planned.path} was made of `{planned.model}`, which is no script that could run",
            hint="name one: `--script train.py`",
        )
    source = parse_source(asked.source)
    return RunSpec(
        script=_within(script, source), arguments=asked.arguments, source=source,
        requirements=asked.requirements, checkpoint_every_s=_checkpoint_every_s(asked, first),
        stop_loss=StopLoss(action=asked.stop_loss or "warn"),
    )  # fmt: skip


def _within(script: str, source: str) -> str:
    """Return a script's path relative to the folder that it is in."""
    kind, _, place = source.partition(":")
    path = Path(script)
    inside = kind == "folder" and path.is_absolute() and path.is_relative_to(place)
    return str(path.relative_to(place)) if inside else script


def _checkpoint_every_s(asked: LaunchArgs, first: LaunchCandidate | None) -> float:
    if asked.checkpoint_every_s is not None:
        return asked.checkpoint_every_s
    planned = None if first is None else first.spot
    return CHECKPOINT_EVERY_S if planned is None else planned.checkpoint_every_s


def _fingerprint(asked: LaunchArgs, spec: RunSpec, provider: str, first: LaunchCandidate) -> str:
    """Return what makes a run the same run: what it computes and on what, not what it may cost."""
    parts = [asked.name, provider, spec.script, *spec.arguments, spec.source]
    return json.dumps([*parts, first.instance_type, first.region, first.purchase])

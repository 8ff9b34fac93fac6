"""From what a user typed to a launch plan: reads the estimate, the catalog and the ledger; asks no cloud."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

from ..errors import NoAnswerError, UsageError
from ..offers.age import require_recent_prices
from ..offers.load import Catalog
from ..offers.local import local_offer
from ..settings import Settings, state_folder
from .adapter import Adapter
from .blueprint import LaunchPlan
from .choose import PlannedOffers, candidates_of, read_estimate
from .clock import SystemClock
from .events import LaunchEvent
from .guard import ESTIMATE_LIFE, LAUNCH_LIFE, require_fresh, require_same_price
from .ledger import Ledger
from .planning import capped, make_plan, require_unchanged
from .providers import LAUNCHABLE
from .request import CHECKPOINT_EVERY_S, Candidate, LaunchRequest, RunSpec, StopLoss
from .service import Launcher

__all__ = ["Asked", "launcher_of", "plan_of", "spec_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags of `gpuplan launch`; see its help."""

    path: Path
    rank: int | None = None
    fallbacks: int = 3
    script: str | None = None
    arguments: tuple[str, ...] = ()
    source: str = "."
    requirements: str | None = None
    max_usd: float | None = None
    max_hours: float | None = None
    stop_loss: Literal["off", "warn", "stop"] = "warn"
    checkpoint_every_s: float | None = None
    accept_old_prices: bool = False
    options: dict[str, str]
    name: str = ""


def launcher_of(settings: Settings, *, tell: Callable[[LaunchEvent], None]) -> Launcher:
    """Return the launcher of this account on this computer."""
    state_dir = state_folder(settings)
    clock = SystemClock()
    ledger = Ledger(state_dir, owner=settings.owner or _user(), clock=clock)
    return Launcher(ledger=ledger, state_dir=state_dir, clock=clock, tell=tell)


def plan_of(asked: Asked, launcher: Launcher, *, catalog: Catalog, look: bool) -> LaunchPlan:
    """Return the launch plan that was asked for, checked against today's prices.

    Args:
        asked: The flags.
        launcher: The ledger and the adapters.
        catalog: With refreshed and committed prices, as the user's settings ask for it.
        look: Whether to ask the provider about a machine of the same run that is on record; needs credentials.

    Raises:
        UsageError, NoAnswerError: What was asked cannot be launched; see each check.
    """
    planned = read_estimate(asked.path)
    plan = _read_plan(asked.path) if planned is None else _new_plan(asked, planned, launcher, look=look)
    adapter = launcher.adapter(plan.request.provider)
    require_unchanged(plan, adapter)
    require_fresh(
        what=f"the launch plan {asked.path}", made_at=plan.made_at, now=launcher.clock.now(), life=LAUNCH_LIFE
    )
    candidates = plan.request.candidates
    offers = (*catalog.offers, local_offer(catalog)[0])
    require_same_price(candidates, provider=plan.request.provider, offers=offers)
    today = launcher.clock.now().date()
    require_recent_prices(candidates, today=today, accept_old=asked.accept_old_prices)
    return plan


def _read_plan(path: Path) -> LaunchPlan:
    """Return a launch plan from its file."""
    from pydantic import ValidationError

    try:
        return LaunchPlan.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path} is no launch plan of this version: `{where}`: {first['msg']}",
            hint="make it anew: `gpuplan launch plan.json --dry-run -o launch.json`",
        ) from error


def _new_plan(asked: Asked, planned: PlannedOffers, launcher: Launcher, *, look: bool) -> LaunchPlan:
    """Return the plan of an estimate's offers."""
    now = launcher.clock.now()
    require_fresh(what=str(asked.path), made_at=planned.written_at, now=now, life=ESTIMATE_LIFE)
    provider, candidates = candidates_of(
        planned, launchable=LAUNCHABLE, rank=asked.rank, fallbacks=asked.fallbacks
    )
    spec = spec_of(asked, planned, candidates[0])
    fingerprint = _fingerprint(asked, spec, provider, candidates[0])
    run = launcher.ledger.next_run(fingerprint)
    if look and launcher.refresh(run):
        run = launcher.ledger.next_run(fingerprint)
    history = launcher.ledger.peek(run)
    current = history.current()
    if current is not None and not current.is_over:
        return current.plan
    spent = history.spent_at_most_usd
    request = LaunchRequest(
        run=run, attempt=history.next_attempt, owner=launcher.ledger.owner, made_at=now, provider=provider,
        candidates=_capped(candidates, asked, spent, launcher.adapter(provider)), spec=spec,
        max_usd=None if asked.max_usd is None else Decimal(str(asked.max_usd)), spent_usd=spent,
        options=asked.options,
    )  # fmt: skip
    return make_plan(request, launcher.adapter(provider))


def _capped(
    candidates: tuple[Candidate, ...], asked: Asked, spent: Decimal, adapter: Adapter
) -> tuple[Candidate, ...]:
    """Return the candidates with their caps; the first must fit the limits, others that do not are left out."""
    left = None if asked.max_usd is None else Decimal(str(asked.max_usd)) - spent
    fitting = []
    for candidate in candidates:
        try:
            fitting.append(
                capped(candidate, adapter, options=asked.options, max_hours=asked.max_hours, max_usd=left)
            )
        except NoAnswerError:
            if not fitting:
                raise
    return tuple(fitting)


def spec_of(asked: Asked, planned: PlannedOffers, first: Candidate | None = None) -> RunSpec:
    """Return what runs: the plan's own script, or the one that was named.

    On a spot machine checkpoints are as far apart as the plan's bill assumes, unless the user says otherwise.
    """
    script = asked.script or planned.model
    if not script.endswith(".py"):
        raise UsageError(
            f"{planned.path} was made of `{planned.model}`, which is no script that could run",
            hint="name one: `--script train.py`",
        )
    return RunSpec(
        script=script, arguments=asked.arguments, source=_source(asked.source), requirements=asked.requirements,
        checkpoint_every_s=_checkpoint_every_s(asked, first), stop_loss=StopLoss(action=asked.stop_loss),
    )  # fmt: skip


def _checkpoint_every_s(asked: Asked, first: Candidate | None) -> float:
    if asked.checkpoint_every_s is not None:
        return asked.checkpoint_every_s
    planned = None if first is None else first.spot
    return CHECKPOINT_EVERY_S if planned is None else planned.checkpoint_every_s


def _source(text: str) -> str:
    """Return where the code is, with its kind in front; a bare path is a folder."""
    kind, colon, _ = text.partition(":")
    if colon and kind in {"folder", "git", "s3", "gs", "image"}:
        return text
    return f"folder:{Path(text).resolve()}"


def _fingerprint(asked: Asked, spec: RunSpec, provider: str, first: Candidate) -> str:
    """Return what makes a run the same run: what it computes and on what, not what it may cost."""
    parts = [asked.name, provider, spec.script, *spec.arguments, spec.source]
    return json.dumps([*parts, first.instance_type, first.region, first.purchase])


def _user() -> str:
    """Return the account's name in letters that every cloud accepts in a tag."""
    return re.sub(r"[^a-z0-9-]+", "-", getpass.getuser().lower()).strip("-") or "nobody"

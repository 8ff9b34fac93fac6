"""Resolution of a request with the user's settings, and durations as the user writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files import set_cache_dir
from ..limits import MAX_DURATION_S, require_positive
from ..predict.sharding import parse_sharding
from ..records import Frozen
from ..settings import load_settings
from ..workload.capture.process import require_variables
from ..workload.options import DataTerms, ScriptOptions, WorkloadOptions, count_tokens
from .cost_terms import POWER_KEYS, SPOT_KEYS, CostTerms, build_cost_terms, take_overrides
from .estimate_request import EstimateRequest
from .preemption import SpotTerms
from .question import Filters, Question, select

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.refresh.background import RunningRefresh
    from ..offers.refresh.quotas import AccountQuotas
    from ..settings import Settings


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_UNIT = r"(s|m|h|d|w)(?:ec|ecs|econds?|in|ins|inutes?|r|rs|ours?|ays?|eeks?)?"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])\s*")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_s(text: str, *, flag: str = "") -> float:
    """Parse a duration like `90s`, `15m`, `12 hours`, `1h30m` or `2d` [s]; UsageError for anything else.

    Example:
        >>> parse_duration_s("1h30m"), parse_duration_s("2 days")
        (5400.0, 172800.0)
    """
    compact = text.strip().lower()
    given = f"{flag} {text}".strip()
    if not _DURATION.fullmatch(compact):
        fault, number = "is not a duration", "12"
        if re.fullmatch(r"\d+(\.\d+)?", compact):
            fault, number = "has no unit", compact
        typed = f"{flag} {number}h".strip()
        raise UsageError(f"`{given}` {fault}", hint=f"write s, m, h or d after the number: `{typed}`")
    duration_s = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))
    if duration_s > MAX_DURATION_S:
        raise UsageError(f"`{given}` is longer than a century", hint="give at most `36500d`")
    return duration_s


def _parse_deadline_s(deadline: str | float | None) -> float | None:
    if isinstance(deadline, str):
        if ":" in deadline:
            return parse_seconds_until(deadline, now=datetime.now())
        return parse_duration_s(deadline, flag="--deadline")
    return deadline


def parse_seconds_until(text: str, *, now: datetime) -> float:
    """Return the time until a point in local time like `Mon 08:00`, `18:30` or `2026-12-01 09:00` [s].

    Raises:
        UsageError: An invalid or past point in time.

    Example:
        >>> parse_seconds_until("Mon 08:00", now=datetime(2026, 11, 20, 20, 0)) / 3600   # a Friday evening
        60.0
    """
    moment = _moment(text.strip(), now)
    if moment is None:
        raise UsageError(
            f"`--deadline {text}` is not a point in time",
            hint='give e.g. `--deadline "Mon 08:00"` or `--deadline 18:30`',
        )
    if moment <= now:
        raise UsageError(f"`--deadline {text}` has passed", hint="give a point in time in the future")
    return (moment - now).total_seconds()


def _moment(text: str, now: datetime) -> datetime | None:
    """Return the next point in time described by a text, or None for an invalid text."""
    *day, clock = text.split() or ("",)
    try:
        time = datetime.strptime(clock, "%H:%M").time()
        today = datetime.combine(now.date(), time)
        if not day:
            return today if today > now else today + timedelta(days=1)
        if len(day) == 1 and day[0][:3].lower() in _WEEKDAYS:
            ahead = (_WEEKDAYS.index(day[0][:3].lower()) - now.weekday()) % len(_WEEKDAYS)
            moment = today + timedelta(days=ahead)
            return moment if moment > now else moment + timedelta(days=len(_WEEKDAYS))
        return datetime.strptime(text, "%Y-%m-%d %H:%M")
    except ValueError:
        return None


FLAG = "--script-timeout"
TRACED_BY = ("batch_size", "samples", "epochs", "steps", "precision", "mode", "loss", "optimizer", "remat")


class ResolvedRequest(Frozen):
    """A request with the user's settings applied."""

    request: EstimateRequest
    question: Question  # filters, order and limits
    options: WorkloadOptions  # tracing options of the run
    catalog: Catalog  # catalog with the user's own rows
    terms: CostTerms  # costs and assumptions besides the training hours
    settings: Settings  # the user's settings
    refresh: RunningRefresh | None = None  # refresh of the catalog's prices that was started; None without one

    def with_refresh(self, **callbacks: Any) -> ResolvedRequest:
        """Return the request with a refresh of old prices in the background; arguments as of `start_refresh`."""
        from ..offers.refresh.background import start_refresh

        return replace(self, refresh=start_refresh(self.catalog, self.settings, **callbacks))

    def with_callback(self, tell: Callable[[str], None]) -> ResolvedRequest:
        """Return the request with a function that is told where the user's code is."""
        return replace(self, options=self.options.with_callback(tell))


def resolve_request(request: EstimateRequest) -> ResolvedRequest:
    """Apply the settings to a request.

    Sets the folder of all caches to that of the settings, for the current thread or task.

    Raises:
        UsageError: An invalid setting, limit or number of devices.
    """
    from ..offers.catalog import load_user_catalog

    options = build_workload_options(request)
    flags = {"providers": tuple(request.providers), "regions": tuple(request.regions), "quota": request.quota}
    settings = load_settings(flags=flags)
    set_cache_dir(settings.cache_dir)
    catalog = load_user_catalog(settings)
    spot, texts = take_overrides(request.list_pairs("assume"), SPOT_KEYS)
    power, texts = take_overrides(texts, POWER_KEYS)
    filters = Filters(
        accelerators=tuple(request.accelerators),
        providers=settings.providers,
        regions=settings.regions,
        purchase=request.purchase,
        devices=tuple(request.devices),
        residency=tuple(request.residency),
        hosts=tuple(request.hosts) or (1,),
    )
    if request.own is not None:
        filters, catalog = _add_own_machine(request.own, request, filters, catalog, power)
    question = Question(
        filters=filters,
        sort=request.sort,
        deadline_s=_parse_deadline_s(request.deadline),
        budget_usd=request.budget,
        feed=request.feed,
        scaling=request.scaling,
        shard=None if request.shard is None else parse_sharding(request.shard),
        spot=SpotTerms(**spot),
        hour_value_usd=settings.hour_value if request.hour_value is None else request.hour_value,
        wait_value_usd=settings.wait_value if request.wait_value is None else request.wait_value,
        partial=request.partial,
        quotas=_read_quotas(filters, catalog, settings) if settings.quota else None,
    )
    terms = build_cost_terms(settings, catalog.costs, assume=texts)
    return ResolvedRequest(
        request=request, question=question, options=options, catalog=catalog, terms=terms, settings=settings
    )


def _add_own_machine(
    name: str, request: EstimateRequest, filters: Filters, catalog: Catalog, power: Mapping[str, float]
) -> tuple[Filters, Catalog]:
    """Return the filters and the catalog with a machine that the user has; alone where nothing else is named."""
    from ..offers.user_prices import OWN_PROVIDER, build_own_machine

    card = catalog.accelerators[catalog.names.resolve(name)]
    owned = build_own_machine(card, devices=next(iter(request.devices), 1.0), **power)
    is_alone = not (request.accelerators or request.providers)
    if request.accelerators or is_alone:
        filters = replace(filters, accelerators=(*filters.accelerators, owned.accelerator))
    if request.providers or is_alone:
        filters = replace(filters, providers=(*request.providers, OWN_PROVIDER))
    return filters, replace(catalog, machines=(owned,))


def _read_quotas(filters: Filters, catalog: Catalog, settings: Settings) -> AccountQuotas:
    """Read the quotas of the user's accounts where the selected offers are."""
    from ..offers.refresh.quotas import read_account_quotas
    from ..offers.refresh.source import RefreshRequest

    asked = RefreshRequest(environ=os.environ, endpoints=settings.endpoint)
    return read_account_quotas((one.offer for one in select(filters, catalog=catalog).offers), asked)


def build_workload_options(request: EstimateRequest) -> WorkloadOptions:
    """Return the tracing options of a request, with those of the user's settings.

    Raises:
        UsageError: An invalid value, or a variable of the setting `script_env` that is not set.
    """
    settings = load_settings()
    script = build_script_terms(settings, timeout=request.script_timeout)
    classes = take_overrides(request.list_pairs("assume"), {"classes": "classes"})[0].get("classes")
    data = replace(script.data, samples=request.samples, classes=None if classes is None else int(classes))
    return WorkloadOptions(
        **{name: getattr(request, name) for name in TRACED_BY},
        tokens=count_tokens(request.tokens),
        use_cache=settings.trace_cache,
        measures_input=request.feed is None,
        script=replace(script, data=data),
    )


def build_script_terms(settings: Settings, *, timeout: str | float | None = None) -> ScriptOptions:
    """Return the terms on which a script runs; its time limit is like `90s`, in seconds, or that of the settings.

    Raises:
        UsageError: An invalid duration, one that is not positive, or a variable that is not set.
    """
    require_variables(settings.script_env)
    flag = FLAG
    if timeout is None:
        timeout, flag = settings.script_timeout, f"script_timeout ({settings.origins['script_timeout']})"
    timeout_s = parse_duration_s(timeout, flag=flag) if isinstance(timeout, str) else timeout
    require_positive(timeout_s, what=flag, example="10m", most=MAX_DURATION_S)
    return ScriptOptions(
        timeout_s=timeout_s, variables=settings.script_env, data=DataTerms(downloads=settings.downloads)
    )

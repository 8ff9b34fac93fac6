"""Select the offers to launch from an estimate's `plan.json`, at current prices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import NoAnswerError, UsageError
from ..offers.catalog import find_image, load_catalog
from ..offers.price_history import require_recent_prices
from ..offers.rows import Offer
from ..predict.sharding import Sharding, read_sharding
from ..units import SECONDS_PER_HOUR, format_duration, format_usd
from .core.api_call import CloudError
from .core.cloud_adapter import Adapter
from .core.request import Interruptions, LaunchCandidate, Seconds

LIVE_TOLERANCE = Decimal("1.10")  # spot prices change by a few percent a day
# Prices of the same machine differ by up to about half between regions; spot and on demand by two to four times.
FALLBACK_FACTOR = Decimal("1.5")


def filter_affordable(candidates: Sequence[LaunchCandidate]) -> tuple[LaunchCandidate, ...]:
    """Return the first candidate, and the others that cost at most 1.5 times as much an hour."""
    first, *others = candidates
    ceiling = first.usd_per_hour * FALLBACK_FACTOR
    return (first, *(one for one in others if one.usd_per_hour <= ceiling))


def add_live_prices(
    candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str], *, limited: bool
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with current prices; a price that cannot be read is kept.

    Args:
        candidates: The estimated candidates.
        adapter: Adapter of their provider.
        options: Provider-specific options.
        limited: Whether the cost of the whole run is limited.

    Raises:
        NoAnswerError: The first costs over 10 % more than planned, and there is no limit.
    """
    priced = [_priced(one, adapter, options) for one in candidates]
    planned, now = candidates[0].usd_per_hour, priced[0].usd_per_hour
    if now > planned * LIVE_TOLERANCE and not limited:
        raise NoAnswerError(
            f"{candidates[0].instance_type} in {candidates[0].region} costs ${now} an hour now, and ${planned} "
            "in the plan",
            hint="limit the cost: `--max-usd N`; or estimate again",
        )
    return tuple(priced)


def require_known_prices(
    candidates: Sequence[LaunchCandidate], *, provider: str, offers: Sequence[Offer], today: date, accept_old: bool
) -> None:
    """Raise NoAnswerError when a price that was not read now has changed in the catalog, or is old.

    Args:
        candidates: Candidates; those with a price read now are skipped.
        provider: Provider of all candidates.
        offers: Offers of the catalog.
        today: Date for the age of prices.
        accept_old: Whether the user accepts prices older than 90 days.
    """
    unread = [one for one in candidates if not one.price_source]
    prices = {
        (offer.instance_type, offer.region, offer.purchase): offer.usd_per_hour
        for offer in offers
        if offer.provider == provider
    }
    hint = "estimate again: `gpuplan estimate … -o plan.json`"
    for one in unread:
        now = prices.get((one.instance_type, one.region, one.purchase))
        where = f"{one.instance_type} in {one.region} ({one.purchase.replace('_', ' ')})"
        if now is None:
            raise NoAnswerError(f"the catalog no longer has a price for {where}", hint=hint)
        if abs(now - one.usd_per_hour) > one.usd_per_hour * type(now)(PRICE_TOLERANCE):
            raise NoAnswerError(
                f"the price of {where} changed from ${one.usd_per_hour} to ${now} an hour since the plan was made",
                hint=hint,
            )
    require_recent_prices(unread, today=today, accept_old=accept_old)


def _priced(candidate: LaunchCandidate, adapter: Adapter, options: Mapping[str, str]) -> LaunchCandidate:
    """Return a candidate with its current price, if it can be read."""
    problem = adapter.missing()
    try:
        live = None if problem else adapter.live_price(candidate, options)
    except CloudError as fault:
        live, problem = None, str(fault)
    if live is None:
        return candidate.model_copy(update={"price_source": "", "price_problem": problem})
    planned = candidate.planned_usd_per_hour or candidate.usd_per_hour
    return candidate.model_copy(
        update={
            "usd_per_hour": live.usd_per_hour,
            "planned_usd_per_hour": planned,
            "price_source": f"{live.source}, {live.read_at:%Y-%m-%d %H:%M} UTC",
            "price_problem": "",
        }
    )


ESTIMATE_LIFE = timedelta(days=7)  # catalog prices change within weeks
LAUNCH_LIFE = timedelta(hours=24)  # exact calls: images and spot prices change within days
PRICE_TOLERANCE = 0.01  # relative; rounding in tags and tables


def require_fresh(*, what: str, made_at: datetime, now: datetime, life: timedelta) -> None:
    """Raise NoAnswerError when a plan is older than its maximum age."""
    age = now - made_at
    if age > life:
        hours = age.total_seconds() / 3600
        raise NoAnswerError(
            f"{what} was made {hours:.0f} h ago and is valid for {life.total_seconds() / 3600:.0f} h",
            hint="create it again with current prices",
        )


COLAB, NOTEBOOKS = "colab", ("colab", "kaggle")
ESTIMATE_SCHEMA = "gpuplan.estimate/1"
LAUNCH_SCHEMA = "gpuplan.launch/1"
_PICKS = ("recommended", "cheapest_paid", "in_between", "fastest_paid")
_CHOICES = ("within_budget", "within_deadline", "cheapest", "free")  # of plans without a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOffers:
    """Offers of an estimate's file.

    Args:
        path: Path of the file.
        model: MODEL argument of the estimate.
        offers: Rows of `offers[]`.
        chosen: Indices of the recommended offer and of the next picks; empty without a recommended one.
        written_at: Modification time of the file.
        versions: Versions of the packages with which the model was traced.
    """

    path: Path
    model: str
    offers: tuple[Mapping[str, Any], ...]
    chosen: tuple[int, ...]
    written_at: datetime
    versions: Mapping[str, str] = field(default_factory=dict)


def read_estimate(path: Path) -> EstimateOffers | None:
    """Read an estimate's file; return None for a launch plan.

    Raises:
        UsageError: It is neither.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=_HOW) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=_HOW) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == LAUNCH_SCHEMA:
        return None
    if schema != ESTIMATE_SCHEMA:
        raise UsageError(f"{path} is not a plan: its schema is {schema!r}", hint=_HOW)
    return EstimateOffers(
        path=path,
        model=data["workload"]["model"],
        offers=tuple(data["offers"]),
        chosen=_chosen(data),
        written_at=datetime.fromtimestamp(path.stat().st_mtime, tz=UTC),
        versions=data["workload"].get("versions", {}),
    )


def select_candidates(
    planned: EstimateOffers,
    *,
    launchable: Sequence[str],
    rank: int | None,
    fallbacks: int,
    engine: str = "gpuplan",
    joins_hosts: bool = False,
    only_recommended: bool = True,
) -> tuple[str, tuple[LaunchCandidate, ...]]:
    """Return the provider and its candidates in the estimate's order, without caps.

    Args:
        planned: The estimate.
        launchable: Supported providers.
        rank: Rank of the first in `offers[]`, from 1; None: what the estimate's decision recommends.
        fallbacks: Maximum number of further offers of the same provider and accelerator.
        engine: Name of the launcher, for messages.
        joins_hosts: Whether the launcher starts several machines for one run.
        only_recommended: Whether to raise an error rather than take the next pick of the decision.

    Raises:
        UsageError: The rank does not exist.
        NoAnswerError: The offer cannot be launched.
    """
    if rank is None:
        index = _recommended(planned, launchable, only_recommended=only_recommended, joins_hosts=joins_hosts)
    elif 1 <= rank <= len(planned.offers):
        index = rank - 1
    else:
        raise UsageError(f"`--rank {rank}`: {planned.path} has {len(planned.offers)} offers", hint="count from 1")
    first = planned.offers[index]
    problem = _why_not(first, launchable, engine, joins_hosts=joins_hosts)
    if problem:
        raise NoAnswerError(
            f"{first['provider']} {first['instance_type']} of {planned.path} {problem}",
            hint="; ".join(filter(None, (_open_notebook(planned, index), _first_launchable(planned, launchable)))),
        )
    others = [
        position
        for position, offer in enumerate(planned.offers)
        if position > index
        and not _why_not(offer, launchable)
        and all(offer[key] == first[key] for key in ("provider", "accelerator", "devices"))
    ]
    similar = tuple(_candidate(planned.offers[one], rank=one + 1) for one in (index, *others))
    return first["provider"], filter_affordable(similar)[: fallbacks + 1]


_HOW = "create a plan: `gpuplan estimate train.py -o plan.json`"


def _chosen(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the indices of the decision's picks; without a decision, of the first recommended offer."""
    picks, names = (data["decision"], _PICKS) if "decision" in data else (data["recommendation"], _CHOICES)
    found = [int(picks[name]["offer"]) for name in names if picks.get(name) is not None]
    if "decision" in data and picks["recommended"] is None:
        return ()
    return tuple(found if "decision" in data else found[:1])


def _recommended(
    planned: EstimateOffers, launchable: Sequence[str], *, only_recommended: bool, joins_hosts: bool
) -> int:
    """Return the index of the recommended offer, or of the next pick of the decision."""
    if not planned.chosen:
        raise NoAnswerError(f"{planned.path} recommends no offer", hint=_first_launchable(planned, launchable))
    if only_recommended:
        return planned.chosen[0]
    able = (
        index
        for index in planned.chosen
        if not _why_not(planned.offers[index], launchable, joins_hosts=joins_hosts)
    )
    return next(able, planned.chosen[0])


def _open_notebook(planned: EstimateOffers, index: int) -> str:
    """Return how to run a plan in the recommended notebook; empty for other offers."""
    provider = planned.offers[index]["provider"]
    if provider not in NOTEBOOKS:
        return ""
    where, place = "", index
    if provider != COLAB:
        where = f"it is a notebook, opened at {provider}.com; for Colab: "
        offers = enumerate(planned.offers)
        place = next((at for at, one in offers if one["provider"] == COLAB and one["memory_fits"]), -1)
        if place < 0:
            return ""
    return f"{where}`gpuplan export {planned.path} --to colab --rank {place + 1} -o notebook.ipynb`"


def _why_not(
    offer: Mapping[str, Any], launchable: Sequence[str], engine: str = "gpuplan", *, joins_hosts: bool = False
) -> str:
    """Return the reason why an offer cannot be launched; empty if it can."""
    if offer["provider"] not in launchable:
        return f"cannot be launched by {engine} (it launches on {', '.join(launchable)})"
    hosts = offer.get("hosts", 1)
    reasons = (
        (offer["usd_per_hour"] is None, "has no known price"),
        (hosts > 1 and not joins_hosts, f"has {hosts} machines, and {engine} launches one"),
        (not offer["complete"], "is only a part of a machine"),
        (offer["memory_fits"] is False, "has too little memory for this workload"),
        (offer.get("runs") is False, "does not run Keras 3"),
        (offer["status"] in {"retired", "historical"}, "can no longer be rented"),
    )
    return next((reason for holds, reason in reasons if holds), offer.get("image_problem", ""))


def add_image_problems(planned: EstimateOffers, *, image: str) -> EstimateOffers:
    """Return the estimate with what keeps each machine from training on its image, or on a given one."""
    catalog, keys = load_catalog(), ("provider", "instance_type", "accelerator")
    problems = (find_image(catalog, **{key: one[key] for key in keys}, name=image)[1] for one in planned.offers)
    marked = ({**one, "image_problem": why} for one, why in zip(planned.offers, problems, strict=True))
    return replace(planned, offers=tuple(marked))


def _first_launchable(planned: EstimateOffers, launchable: Sequence[str]) -> str:
    """Return a hint with the best rented offer that can be launched, or else the best of all.

    The best offer has the lowest product of time and cost, like the decision's compromise: neither a day on a CPU
    for a few cents nor the fastest machine at any price.
    """
    able = [place for place, offer in enumerate(planned.offers) if not _why_not(offer, launchable)]
    paid = [place for place in able if float(planned.offers[place]["usd_per_hour"]) > 0]
    found = min(paid or able, key=lambda place: _compute_time_and_cost(planned.offers[place]), default=None)
    if found is not None:
        offer = planned.offers[found]
        name = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
        run, cost = offer.get("run_time_s"), offer.get("cost_usd")
        takes = f", {format_duration(run['mid'])}" if run else ""
        usd = f", ${format_usd(float(cost['mid']))}" if cost else ""
        return f"the best that can be launched is {name}{takes}{usd}: `--rank {found + 1}`"
    return f"estimate with one of these: {', '.join(f'`--provider {name}`' for name in launchable)}"


def _compute_time_and_cost(offer: Mapping[str, Any]) -> tuple[bool, float]:
    """Return the sort key time x cost of an offer; too small quotas come last, after unknown times and costs."""
    run, cost, quota = offer.get("run_time_s"), offer.get("cost_usd"), offer.get("quota")
    is_refused = quota is not None and quota["state"] == "too_small"
    return is_refused, run["mid"] * float(cost["mid"]) if run and cost else math.inf


def _candidate(offer: Mapping[str, Any], *, rank: int) -> LaunchCandidate:
    """Return an offer as a candidate without a cap."""
    run_s, step_s = offer["train_time_s"], offer["step_time_s"]
    return LaunchCandidate(
        rank=rank,
        instance_type=offer["instance_type"],
        accelerator=offer["accelerator"],
        devices=offer["devices"],
        region=offer["region"],
        purchase=offer["purchase"],
        usd_per_hour=Decimal(offer["usd_per_hour"]),
        price_as_of=offer["price_as_of"],
        run_s=Seconds(**run_s) if run_s else None,
        step_s=Seconds(**step_s) if step_s else None,
        cap_s=0,
        spot=_interruptions(offer.get("spot")),
        shard=str(_find_sharding(offer)),
        micro_batch_size=_find_micro_batch_size(offer),
        gradient_accumulation_steps=offer.get("gradient_accumulation_steps", 1),
        recomputed=offer.get("recomputed", False),
    )


def _find_micro_batch_size(offer: Mapping[str, Any]) -> int | None:
    """Return the samples of a pass on one device; None for the whole batch, or unknown [-]."""
    size: int | None = offer.get("micro_batch_size")
    return None if size == offer.get("batch_size_per_device") else size


def _find_sharding(offer: Mapping[str, Any]) -> Sharding:
    return read_sharding(offer.get("shard", str(Sharding.NONE)))


def _interruptions(spot: Mapping[str, Any] | None) -> Interruptions | None:
    """Return the expected preemptions of a spot offer."""
    if spot is None:
        return None
    return Interruptions(
        life_s=spot["hours_to_preemption"] * SECONDS_PER_HOUR,
        basis=spot["basis"],
        notice_s=spot["notice_s"],
        count=spot["preemptions"],
        checkpoint_every_s=spot["checkpoint_interval_s"],
        checkpoint_s=spot["checkpoint_s"],
    )

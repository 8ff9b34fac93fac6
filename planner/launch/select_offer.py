"""Select the offers to launch from an estimate's `plan.json`, at current prices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import NoAnswerError, UsageError
from ..estimate_document import read_offers
from ..offers.catalog import find_image, load_chosen_catalog
from ..offers.clouds import COLAB, NOTEBOOKS, find_tier
from ..offers.price_history import require_recent_prices
from ..offers.rows import Offer
from ..predict.sharding import Sharding, read_sharding
from ..units import SECONDS_PER_HOUR, format_duration, format_usd
from .clouds import LAUNCHABLE
from .core.api_call import CloudError
from .core.cloud_adapter import Adapter
from .core.request import LONGEST_CAP_S, LaunchCandidate

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

    Raises:
        NoAnswerError: The first costs over 10 % more than planned, and the cost of the whole run is not limited.
    """
    priced = tuple(one.changed(**_read_price(one, adapter, options)) for one in candidates)
    planned, now = candidates[0].usd_per_hour, priced[0].usd_per_hour
    if now > planned * LIVE_TOLERANCE and not limited:
        raise NoAnswerError(
            f"{candidates[0].instance_type} in {candidates[0].region} costs ${now} an hour now, and ${planned} "
            "in the plan",
            hint="limit the cost: `--max-usd N`; or estimate again",
        )
    return priced


def _read_price(candidate: LaunchCandidate, adapter: Adapter, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a candidate that its current price, or the lack of it, changes."""
    if problem := adapter.missing():
        return {"price_source": "", "price_problem": problem}
    try:
        live = adapter.live_price(candidate, options)
    except CloudError as fault:
        return {"price_source": "", "price_problem": str(fault)}
    return {
        "usd_per_hour": live.usd_per_hour,
        "planned_usd_per_hour": candidate.planned_usd_per_hour or candidate.usd_per_hour,
        "price_source": f"{live.source}, {live.read_at:%Y-%m-%d %H:%M} UTC",
        "price_problem": "",
    }


def require_known_prices(
    candidates: Sequence[LaunchCandidate], *, provider: str, offers: Sequence[Offer], today: date, accept_old: bool
) -> None:
    """Raise NoAnswerError when a price that was not read now changed in the catalog, or is over 90 days old."""
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
        if abs(now - one.usd_per_hour) > one.usd_per_hour * PRICE_TOLERANCE:
            raise NoAnswerError(
                f"the price of {where} changed from ${one.usd_per_hour} to ${now} an hour since the plan was made",
                hint=hint,
            )
    require_recent_prices((one.price_as_of for one in unread), today=today, accept_old=accept_old)


ESTIMATE_LIFE = timedelta(days=7)  # catalog prices change within weeks
LAUNCH_LIFE = timedelta(hours=24)  # exact calls: images and spot prices change within days
PRICE_TOLERANCE = Decimal("0.01")  # relative; rounding in tags and tables


def require_fresh(*, what: str, made_at: datetime, now: datetime, life: timedelta) -> None:
    """Raise NoAnswerError when a plan is older than its maximum age."""
    age = now - made_at
    if age > life:
        hours = age.total_seconds() / 3600
        raise NoAnswerError(
            f"{what} was made {hours:.0f} h ago and is valid for {life.total_seconds() / 3600:.0f} h",
            hint="create it again with current prices",
        )


_PICKS = ("recommended", "cheaper", "faster")
_CHOICES = ("within_budget", "within_deadline", "cheapest", "free")  # of plans without a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Renter:
    """A launcher or engine that rents a machine of an estimate."""

    title: str = "gpuplan"
    providers: tuple[str, ...] = LAUNCHABLE
    joins_hosts: bool = False  # whether it starts several machines for one run
    left_out: tuple[str, ...] = ()  # tiers of marketplaces that it does not rent
    # image of its machines; empty: the first of the table that serves a machine; None: not of the table
    image: str | None = None

    def why_not(self, offer: Mapping[str, Any]) -> str:
        """Return the reason why an offer cannot be launched; empty if it can."""
        if offer["provider"] not in self.providers:
            return f"cannot be launched by {self.title} (it launches on {', '.join(self.providers)})"
        hosts, tier = offer.get("hosts", 1), find_tier(offer["instance_type"])
        reasons = (
            (offer["usd_per_hour"] is None, "has no known price"),
            (tier in self.left_out, f"is of the tier `{tier}`, which {self.title} does not rent"),
            (hosts > 1 and not self.joins_hosts, f"has {hosts} machines, and {self.title} launches one"),
            (not offer["complete"], "is only a part of a machine"),
            (offer["memory_fits"] is False, "has too little memory for this workload"),
            (offer.get("runs") is False, "does not run Keras 3"),
            (offer["status"] in {"retired", "historical"}, "can no longer be rented"),
        )
        problem = next((reason for holds, reason in reasons if holds), "")
        if problem or self.image is None:
            return problem
        keys = ("provider", "instance_type", "accelerator")
        return find_image(load_chosen_catalog(), **{key: offer[key] for key in keys}, name=self.image)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOffers:
    """Offers of an estimate's file: the rows of `offers[]`."""

    path: Path
    model: str  # MODEL argument of the estimate
    offers: tuple[Mapping[str, Any], ...]
    # indices of the recommended offer and of the next picks; empty without a recommended one
    chosen: tuple[int, ...]
    written_at: datetime  # modification time of the file
    # versions of the packages with which the model was traced
    versions: Mapping[str, str] = field(default_factory=dict)


def read_estimate(path: Path) -> EstimateOffers | None:
    """Read an estimate's file; return None for a launch plan; UsageError for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"no such file: `{path}`", hint=f"make it: `gpuplan estimate train.py -o {path}`"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=_HOW) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=_HOW) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == "gpuplan.launch/1":
        return None
    if schema != "gpuplan.estimate/1":
        raise UsageError(f"{path} is not a plan: its schema is {schema!r}", hint=_HOW)
    return EstimateOffers(
        path=path,
        model=data["workload"]["model"],
        offers=tuple(read_offers(data)),
        chosen=_chosen(data),
        written_at=datetime.fromtimestamp(path.stat().st_mtime, tz=UTC),
        versions=data["workload"].get("versions", {}),
    )


def select_candidates(
    planned: EstimateOffers, renter: Renter, *, rank: int | None, fallbacks: int, only_recommended: bool = True
) -> tuple[str, tuple[LaunchCandidate, ...]]:
    """Return the provider and its candidates in the estimate's order, without caps.

    Args:
        rank: Rank of the first in `offers[]`, from 1; None: what the estimate's decision recommends.
        fallbacks: Maximum number of further offers of the same provider and accelerator.
        only_recommended: Whether to raise an error rather than take the next offer that can be launched.

    Raises:
        UsageError: The rank does not exist.
        NoAnswerError: The offer cannot be launched.
    """
    offers = planned.offers
    if rank is None:
        index = _recommended(planned, renter, only_recommended=only_recommended)
    elif 1 <= rank <= len(offers):
        index = rank - 1
    else:
        raise UsageError(f"`--rank {rank}`: {planned.path} has {len(offers)} offers", hint="count from 1")
    first = offers[index]
    if problem := renter.why_not(first):
        raise NoAnswerError(
            f"{first['provider']} {first['instance_type']} of {planned.path} {problem}",
            hint="; ".join(filter(None, (_open_notebook(planned, index), _first_launchable(planned, renter)))),
        )
    alike = ("provider", "accelerator", "devices")
    similar = tuple(
        _candidate(offer, rank=position + 1)
        for position, offer in enumerate(offers)
        if position == index
        or (position > index and not renter.why_not(offer) and all(offer[key] == first[key] for key in alike))
    )
    return first["provider"], filter_affordable(similar)[: fallbacks + 1]


_HOW = "make a plan: `gpuplan estimate train.py -o plan.json`"


def _chosen(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the indices of the decision's picks; without a decision, of the first recommended offer."""
    picks, names = (data["decision"], _PICKS) if "decision" in data else (data["recommendation"], _CHOICES)
    found = [int(picks[name]["offer"]) for name in names if picks.get(name) is not None]
    if "decision" in data and picks["recommended"] is None:
        return ()
    return tuple(found if "decision" in data else found[:1])


def _recommended(planned: EstimateOffers, renter: Renter, *, only_recommended: bool) -> int:
    """Return the index of the recommended offer, or else the next pick, or that of the least total."""
    if not planned.chosen:
        raise NoAnswerError(f"{planned.path} recommends no offer", hint=_first_launchable(planned, renter))
    if only_recommended:
        return planned.chosen[0]
    able = (*planned.chosen, *_rank_launchable(planned, renter))
    return next((index for index in able if not renter.why_not(planned.offers[index])), planned.chosen[0])


def _rank_launchable(planned: EstimateOffers, renter: Renter) -> list[int]:
    """Return the indices of the offers that can be launched, least total first; too small quotas come last."""

    def find_key(place: int) -> tuple[bool, float]:
        offer = planned.offers[place]
        usd, quota = offer.get("total_usd"), offer.get("quota")
        return quota is not None and quota["state"] == "too_small", math.inf if usd is None else float(usd)

    return sorted((i for i, one in enumerate(planned.offers) if not renter.why_not(one)), key=find_key)


def _open_notebook(planned: EstimateOffers, index: int) -> str:
    """Return how to run a plan in the recommended notebook; empty for other offers."""
    provider = planned.offers[index]["provider"]
    if provider not in NOTEBOOKS:
        return ""
    where, ranks = "", [index + 1]
    if provider != COLAB:
        where = f"it is a notebook, opened at {provider}.com; for Colab: "
        offers = enumerate(planned.offers, start=1)
        ranks = [rank for rank, one in offers if one["provider"] == COLAB and one["memory_fits"]]
    return (
        f"{where}`gpuplan export {planned.path} --to colab --rank {ranks[0]} -o notebook.ipynb`" if ranks else ""
    )


def _first_launchable(planned: EstimateOffers, renter: Renter) -> str:
    """Return a hint with the best rented offer that can be launched, or else the best of all."""
    able = _rank_launchable(planned, renter)
    paid = (place for place in able if float(planned.offers[place]["usd_per_hour"]) > 0)
    found = next(chain(paid, able), None)
    if found is not None:
        offer = planned.offers[found]
        name = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
        run, cost = offer.get("run_time_s"), offer.get("cost_usd")
        takes = f", {format_duration(run['mid'])}" if run else ""
        usd = f", ${format_usd(float(cost['mid']))}" if cost else ""
        return f"the best that can be launched is {name}{takes}{usd}: `--rank {found + 1}`"
    return f"plan such a machine: `gpuplan estimate {planned.model} --provider {renter.providers[0]} -o plan.json`"


_SAME = ("instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour", "price_as_of")
_OPTIONAL = ("gradient_accumulation_steps", "recomputed")


def _candidate(offer: Mapping[str, Any], *, rank: int) -> LaunchCandidate:
    """Return an offer as a candidate whose cap no limit has shortened yet."""
    passes, spot = offer.get("micro_batch_size"), offer.get("spot")
    values = {
        **{name: offer[name] for name in _SAME},
        **{name: offer[name] for name in _OPTIONAL if name in offer},
        "rank": rank,
        "run_s": offer["train_time_s"] or None,
        "step_s": offer["step_time_s"] or None,
        "cap_s": LONGEST_CAP_S,
        "shard": str(read_sharding(offer.get("shard", str(Sharding.NONE)))),
        "micro_batch_size": None if passes == offer.get("batch_size_per_device") else passes,
    }
    if spot is not None:
        values["spot"] = {
            "life_s": spot["hours_to_preemption"] * SECONDS_PER_HOUR,
            "basis": spot["basis"],
            "notice_s": spot["notice_s"],
            "count": spot["preemptions"],
            "checkpoint_every_s": spot["checkpoint_interval_s"],
            "checkpoint_s": spot["checkpoint_s"],
        }
    return LaunchCandidate.model_validate(values)

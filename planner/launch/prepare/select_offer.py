"""Select the offers to launch from an estimate's `plan.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ...errors import NoAnswerError, UsageError
from ...numbers import format_duration, format_usd
from ...units import SECONDS_PER_HOUR
from ..core.request import Interruptions, LaunchCandidate, Seconds
from .pricing import filter_affordable

__all__ = ["EstimateOffers", "read_estimate", "select_candidates"]

ESTIMATE_SCHEMA = "gpuplan.estimate/1"
LAUNCH_SCHEMA = "gpuplan.launch/1"
_CHOICES = ("within_budget", "within_deadline", "cheapest", "free")


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOffers:
    """Offers of an estimate's file.

    Args:
        path: Path of the file.
        model: MODEL argument of the estimate.
        offers: Rows of `offers[]`.
        chosen: Index of the recommended offer; None without one.
        written_at: Modification time of the file.
        versions: Versions of the packages with which the model was traced.
    """

    path: Path
    model: str
    offers: tuple[Mapping[str, Any], ...]
    chosen: int | None
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
        chosen=_chosen(data["recommendation"]),
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
) -> tuple[str, tuple[LaunchCandidate, ...]]:
    """Return the provider and its candidates in the estimate's order, without caps.

    Args:
        planned: The estimate.
        launchable: Supported providers.
        rank: Rank of the first in `offers[]`, from 1; None: the estimate's recommendation.
        fallbacks: Maximum number of further offers of the same provider and accelerator.
        engine: Name of the launcher, for messages.

    Raises:
        UsageError: The rank does not exist.
        NoAnswerError: The offer cannot be launched.
    """
    index = _index(planned, launchable=launchable, rank=rank)
    first = planned.offers[index]
    problem = _why_not(first, launchable, engine)
    if problem:
        raise NoAnswerError(
            f"{first['provider']} {first['instance_type']} of {planned.path} {problem}",
            hint=_first_launchable(planned, launchable),
        )
    others = [
        position
        for position, offer in enumerate(planned.offers)
        if position > index and not _why_not(offer, launchable) and _can_replace(offer, first)
    ]
    similar = tuple(_candidate(planned.offers[one], rank=one + 1) for one in (index, *others))
    return first["provider"], filter_affordable(similar)[: fallbacks + 1]


_HOW = "create a plan: `gpuplan estimate train.py -o plan.json`"


def _chosen(recommendation: Mapping[str, Any]) -> int | None:
    """Return the index of the recommended offer: within the limits, else the cheapest, else a free one."""
    for name in _CHOICES:
        found = recommendation.get(name)
        if found is not None:
            return int(found["offer"])
    return None


def _index(planned: EstimateOffers, *, launchable: Sequence[str], rank: int | None) -> int:
    """Return the index of the first offer to try."""
    if rank is not None:
        if not 1 <= rank <= len(planned.offers):
            raise UsageError(
                f"`--rank {rank}`: {planned.path} has {len(planned.offers)} offers", hint="count from 1"
            )
        return rank - 1
    if planned.chosen is None:
        raise NoAnswerError(
            f"{planned.path} recommends no offer", hint=_first_launchable(planned, launchable)
        )
    return planned.chosen


def _why_not(offer: Mapping[str, Any], launchable: Sequence[str], engine: str = "gpuplan") -> str:
    """Return the reason why an offer cannot be launched; empty if it can."""
    if offer["provider"] not in launchable:
        return f"cannot be launched by {engine} (it launches on {', '.join(launchable)})"
    hosts = offer.get("hosts", 1)
    reasons = (
        (offer["usd_per_hour"] is None, "has no known price"),
        (hosts > 1, f"has {hosts} machines, and {engine} launches one"),
        (not offer["complete"], "is only a part of a machine"),
        (offer["memory_fits"] is False, "has too little memory for this workload"),
        (offer.get("runs") is False, "does not run Keras 3"),
        (offer["status"] in {"retired", "historical"}, "can no longer be rented"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _first_launchable(planned: EstimateOffers, launchable: Sequence[str]) -> str:
    """Return a hint with the best rented offer that can be launched, or else the best of all."""
    able = [place for place, offer in enumerate(planned.offers) if not _why_not(offer, launchable)]
    paid = [place for place in able if float(planned.offers[place]["usd_per_hour"]) > 0]
    for position in (paid or able)[:1]:
        offer = planned.offers[position]
        name = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
        run, cost = offer.get("run_time_s"), offer.get("cost_usd")
        takes = f", {format_duration(run['mid'])}" if run else ""
        usd = f", ${format_usd(float(cost['mid']))}" if cost else ""
        return f"the best that can be launched is {name}{takes}{usd}: `--rank {position + 1}`"
    return f"estimate with one of these: {', '.join(f'`--provider {name}`' for name in launchable)}"


def _can_replace(offer: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether an offer can replace the first: same provider and devices."""
    return all(offer[key] == first[key] for key in ("provider", "accelerator", "devices"))


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
    )


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

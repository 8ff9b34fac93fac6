"""Alternatives of `gpuplan breakeven`: offers selected by name, each with its availability and calendar time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import NoAnswerError, UsageError
from ..offers.clouds import HYPERSCALERS

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.notebooks import SessionLimits
    from ..offers.rows import NotebookPlan, Offer
    from .cost_terms import CostTerms
    from .offer_estimate import OfferEstimate


DEFAULT_ALTERNATIVES = ("colab-free", "kaggle-free", "colab-payg", "local", "cloud:on-demand", "cloud:spot")
CHEAPEST_TRIED, FASTEST_TRIED = 8, 4
PURCHASES = {"on-demand": "on_demand", "on_demand": "on_demand", "spot": "spot"}
HOURS_PER_DAY = 24.0
DAYS_PER_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An offer that is compared with others.

    Args:
        name: Name under which it was requested.
        offer: Estimate on the offer.
        availability: Availability of the machine.
        attended: Whether the user has to keep the notebook open.
        plan: Notebook plan; None for other machines.
    """

    name: str
    offer: OfferEstimate
    availability: Availability
    attended: bool
    plan: NotebookPlan | None = None


def match_offers(name: str, offers: Iterable[OfferEstimate]) -> list[OfferEstimate]:
    """Return the offers that match a name.

    A name is a provider or the beginning of an instance type, followed by patterns of the instance type or a
    purchase option: `colab-free`, `local`, `aws`, `aws:g4dn.xlarge`, `aws:g4dn.*:spot`, `cloud:spot`. `cloud`
    stands for AWS, Google Cloud and Azure.
    """
    head, *parts = name.lower().split(":")
    purchase = next((PURCHASES[part] for part in parts if part in PURCHASES), None)
    patterns = [part for part in parts if part not in PURCHASES]

    def means(offer: Offer) -> bool:
        provider, instance = offer.provider.lower(), offer.instance_type.lower()
        known = provider == head or instance.startswith(head) or (head == "cloud" and provider in HYPERSCALERS)
        fits = all(fnmatchcase(instance, p) or fnmatchcase(instance, f"{provider}:{p}") for p in patterns)
        return known and fits and purchase in (None, offer.purchase)

    return [one for one in offers if means(one.offer)]


def select_alternatives(
    names: Sequence[str],
    offers: Sequence[OfferEstimate],
    *,
    catalog: Catalog,
    terms: CostTerms,
    hours_a_day: float,
    asked_for: bool,
) -> list[Alternative]:
    """Select the offers of each name that may be its best: the cheapest and the fastest that can run the work.

    Args:
        names: Requested names.
        offers: Estimates, best first.
        catalog: Catalog with the limits of notebooks.
        terms: Costs and assumptions.
        hours_a_day: Hours a day during which the user keeps a notebook open [h].
        asked_for: Whether the user gave the names, so that one without offers is an error.

    Raises:
        UsageError: A name given by the user matches no offer.
        NoAnswerError: No offer can run the work.
    """
    found = []
    for name in names:
        meant = match_offers(name, offers)
        if not meant and asked_for:
            raise UsageError(
                f"`{name}` in `--against` matches no offer",
                hint="give e.g. `colab-free`, `local`, `aws:g4dn.xlarge`, `aws:g4dn.xlarge:spot`, `cloud:spot`",
            )
        able = [one for one in meant if _can_run(one) and one.bill and one.offer.complete]
        found += [_build_alternative(name, one, catalog, terms, hours_a_day) for one in _shortlist(able)]
    if not found:
        raise NoAnswerError(
            f"none of {', '.join(names)} can run the work: too little memory, or no known time and price",
            hint="try a smaller `--batch-size`, or other names in `--against`",
        )
    return found


def _can_run(one: OfferEstimate) -> bool:
    return one.device_estimate.memory.fits is True and not one.device_estimate.is_ruled_out


def _shortlist(able: Sequence[OfferEstimate]) -> list[OfferEstimate]:
    """Return the cheapest and the fastest offers, one per instance type and purchase option."""
    machines: dict[tuple[str, str], OfferEstimate] = {}
    for one in able:
        machines.setdefault((one.offer.instance_type, one.offer.purchase), one)
    kept = list(machines.values())
    fastest = sorted(kept, key=lambda one: one.run_time_s.mid if one.run_time_s else 0.0)
    chosen = {id(one): one for one in (*kept[:CHEAPEST_TRIED], *fastest[:FASTEST_TRIED])}
    return list(chosen.values())


def compute_availability(
    limits: SessionLimits | None, *, free: bool, terms: CostTerms, hours_a_day: float
) -> Availability:
    """Compute the availability of a machine per day and week.

    Args:
        limits: Session limits of a notebook; None for other machines.
        free: Whether the plan is free.
        terms: Costs and assumptions.
        hours_a_day: Hours a day during which the user keeps a notebook open [h].
    """
    if limits is None:
        return Availability()
    weekly = limits.weekly_quota_hours
    if weekly is not None:
        weekly = terms.given("notebook_hours_a_week") or weekly
    daily = HOURS_PER_DAY if limits.background else hours_a_day
    usual = terms.bounds("free_hours_a_day", "notebook")
    if free and usual is not None and weekly is None:
        daily = min(daily, usual[1])
    chance = None if limits.guaranteed else terms.given("chance")
    return Availability(hours_a_day=daily, hours_a_week=weekly, chance=chance)


def _build_alternative(
    name: str, one: OfferEstimate, catalog: Catalog, terms: CostTerms, hours_a_day: float
) -> Alternative:
    from ..offers.notebooks import find_notebook_plan, find_session_limits

    limits = find_session_limits(catalog.notebooks, one.offer)
    plan = find_notebook_plan(catalog.notebooks, one.offer)
    free = plan is not None and plan.free
    return Alternative(
        name=name,
        offer=one,
        availability=compute_availability(limits, free=free, terms=terms, hours_a_day=hours_a_day),
        attended=limits is not None and not limits.background,
        plan=plan,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Availability of a machine.

    Args:
        hours_a_day: Hours a day that the machine can run: 24 if unattended [h].
        hours_a_week: Weekly quota; None without one [h].
        chance: Chance of getting the accelerator on request; None if unknown, treated as certain [-].
    """

    hours_a_day: float = HOURS_PER_DAY
    hours_a_week: float | None = None
    chance: float | None = None


def calendar_hours(machine_h: float, availability: Availability) -> float:
    """Return the calendar time that some machine hours take [h].

    Days are filled one after the other; work beyond the weekly quota waits for the next week. An uncertain
    accelerator takes 1 / chance attempts, so the calendar time is divided by the chance.

    Args:
        machine_h: Machine hours [h].
        availability: Availability of the machine per day and week.

    Example:
        >>> calendar_hours(10.0, Availability(hours_a_day=4.0))   # two full days and two hours of the third
        50.0
        >>> calendar_hours(60.0, Availability(hours_a_day=24.0, hours_a_week=30.0))  # a week, and 30 hours
        198.0
    """
    hours = machine_h
    waited = 0.0
    if availability.hours_a_week is not None:
        quota = min(availability.hours_a_week, DAYS_PER_WEEK * availability.hours_a_day)
        weeks = max(0, math.ceil(hours / quota) - 1)
        hours -= weeks * quota
        waited = weeks * DAYS_PER_WEEK * HOURS_PER_DAY
    days = max(0, math.ceil(hours / availability.hours_a_day) - 1)
    elapsed = waited + days * HOURS_PER_DAY + hours - days * availability.hours_a_day
    return elapsed if availability.chance is None else elapsed / availability.chance


def own_hours(*, sessions: int, machine_h: float, hands_on_min: float, attention_share: float) -> float:
    """Return the user's hours for a run: sessions x hands-on time + attention share x machine hours [h].

    Args:
        sessions: Number of sessions that the user starts [-].
        machine_h: Machine hours [h].
        hands_on_min: Time to start one session and fetch its results [min].
        attention_share: Share of the machine hours during which the user watches [-].

    Example:
        >>> own_hours(sessions=3, machine_h=30.0, hands_on_min=5.0, attention_share=0.05)
        1.75
    """
    return sessions * hands_on_min / 60.0 + attention_share * machine_h

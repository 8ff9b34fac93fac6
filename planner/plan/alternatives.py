"""Alternatives of `gpuplan breakeven`: offers selected by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import NoAnswerError, UsageError
from ..offers.clouds import HYPERSCALERS

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from .offer_estimate import OfferEstimate


DEFAULT_ALTERNATIVES = ("colab-free", "kaggle-free", "colab-payg", "local", "cloud:on-demand", "cloud:spot")
CHEAPEST_TRIED, FASTEST_TRIED = 8, 4
PURCHASES = {"on-demand": "on_demand", "on_demand": "on_demand", "spot": "spot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An offer that is compared with others.

    Args:
        name: Name under which it was requested.
        offer: Estimate on the offer.
    """

    name: str
    offer: OfferEstimate


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
    names: Sequence[str], offers: Sequence[OfferEstimate], *, asked_for: bool, picked: Iterable[OfferEstimate] = ()
) -> list[Alternative]:
    """Select the offers of each name that may be its best: the cheapest and the fastest that can run the work.

    Args:
        names: Requested names.
        offers: Estimates, best first.
        asked_for: Whether the user gave the names, so that one without offers is an error.
        picked: Offers that are compared besides, under the first name that means them.

    Raises:
        UsageError: A name given by the user matches no offer.
        NoAnswerError: No offer can run the work.
    """
    found = [Alternative(name=_find_name(one, names), offer=one) for one in picked]
    for name in names:
        meant = match_offers(name, offers)
        if not meant and asked_for:
            raise UsageError(
                f"`{name}` in `--against` matches no offer",
                hint="give e.g. `colab-free`, `local`, `aws:g4dn.xlarge`, `aws:g4dn.xlarge:spot`, `cloud:spot`",
            )
        able = [one for one in meant if _can_run(one) and one.bill and one.offer.complete]
        found += [Alternative(name=name, offer=one) for one in _shortlist(able)]
    if not found:
        raise NoAnswerError(
            f"none of {', '.join(names)} can run the work: too little memory, or no known time and price",
            hint="try a smaller `--batch-size`, or other names in `--against`",
        )
    return found


def _can_run(one: OfferEstimate) -> bool:
    return one.device_estimate.memory.fits is True and not one.device_estimate.is_ruled_out


def _find_name(one: OfferEstimate, names: Iterable[str]) -> str:
    """Return the first name that means an offer, or the narrowest one."""
    offer = one.offer
    own = f"{offer.provider}:{offer.instance_type.removeprefix(f'{offer.provider}:')}:{offer.purchase}"
    return next((name for name in names if match_offers(name, [one])), own)


def _shortlist(able: Sequence[OfferEstimate]) -> list[OfferEstimate]:
    """Return the offers of least money, time and total, one per instance type and purchase option."""
    machines: dict[tuple[str, str], OfferEstimate] = {}
    for one in sorted(able, key=lambda one: one.total_usd or 0.0):
        machines.setdefault((one.offer.instance_type, one.offer.purchase), one)
    kept = list(machines.values())
    cheapest = sorted(kept, key=lambda one: one.bill.mid_nano if one.bill else 0)
    fastest = sorted(kept, key=lambda one: one.run_time_s.mid if one.run_time_s else 0.0)
    chosen = {id(one): one for one in (*kept[:1], *cheapest[:CHEAPEST_TRIED], *fastest[:FASTEST_TRIED])}
    return list(chosen.values())

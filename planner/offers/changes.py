"""Differences between two price lists, and the price history of a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from .rows import Offer

if TYPE_CHECKING:
    from .refresh.store import PriceStore

__all__ = ["Change", "PastPrice", "collect_price_history", "diff_prices"]

OfferKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A changed, added or removed price; ``percent`` is None unless the price changed."""

    kind: Literal["changed", "added", "removed"]
    provider: str
    instance_type: str
    region: str
    purchase: str
    old_usd_per_hour: Decimal | None
    new_usd_per_hour: Decimal | None
    percent: float | None
    old_as_of: str | None
    new_as_of: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrice:
    """A dated price of an offer and its source."""

    as_of: str
    provider: str
    instance_type: str
    region: str
    purchase: str
    usd_per_hour: Decimal
    estimated: bool
    source: str


def diff_prices(old: Iterable[Offer], new: Iterable[Offer]) -> list[Change]:
    """Return the differences between two price lists: changes by size, then additions and removals."""
    before, after = _index_by_key(old), _index_by_key(new)
    changes = []
    for key in before.keys() | after.keys():
        change = _build_change(key, before.get(key), after.get(key))
        if change is not None:
            changes.append(change)
    order = ("changed", "added", "removed")
    return sorted(
        changes,
        key=lambda c: (
            order.index(c.kind),
            -abs(c.percent or 0.0),
            c.provider,
            c.instance_type,
            c.region,
            c.purchase,
        ),
    )


def _index_by_key(offers: Iterable[Offer]) -> Mapping[OfferKey, Offer]:
    return {(o.provider, o.instance_type, o.region, o.purchase): o for o in offers if o.usd_per_hour}


def _build_change(key: OfferKey, old: Offer | None, new: Offer | None) -> Change | None:
    """Return the change of one offer's price; None if it is unchanged."""
    before, after = (offer.usd_per_hour if offer else None for offer in (old, new))
    if before == after:
        return None
    provider, instance_type, region, purchase = key
    return Change(
        kind="added" if before is None else "removed" if after is None else "changed",
        provider=provider,
        instance_type=instance_type,
        region=region,
        purchase=purchase,
        old_usd_per_hour=before,
        new_usd_per_hour=after,
        percent=float(after / before - 1) * 100 if before and after else None,
        old_as_of=old.price_as_of if old else None,
        new_as_of=new.price_as_of if new else None,
    )


def collect_price_history(
    instance_type: str, packaged: Iterable[Offer], store: PriceStore
) -> list[PastPrice]:
    """Return every dated price of an instance type, packaged and refreshed, oldest first."""
    wanted = instance_type.lower()
    found = [
        PastPrice(
            as_of=offer.price_as_of,
            provider=offer.provider,
            instance_type=offer.instance_type,
            region=offer.region,
            purchase=offer.purchase,
            usd_per_hour=offer.usd_per_hour,
            estimated=offer.estimated,
            source=offer.price_source or "",
        )
        for offer in packaged
        if offer.instance_type.lower() == wanted and offer.usd_per_hour and offer.price_as_of
    ]
    for provider in store.providers:
        found += [
            PastPrice(
                as_of=row.as_of,
                provider=provider,
                instance_type=row.instance_type,
                region=row.region,
                purchase=row.purchase,
                usd_per_hour=Decimal(row.usd_per_hour),
                estimated=False,
                source=f"{row.url} ({row.sku})",
            )
            for row in store.history(provider)
            if row.instance_type.lower() == wanted
        ]
    return sorted(found, key=lambda row: (row.provider, row.region, row.purchase, row.as_of))

"""Merge of refreshed prices into the packaged ones."""

from __future__ import annotations

from collections.abc import Sequence

from ..rows import Offer
from .store import PriceStore


def merge_refreshed(packaged: Sequence[Offer], store: PriceStore) -> tuple[Offer, ...]:
    """Merge refreshed offers into packaged ones, replacing prices and adding new offers.

    The later date wins, so that a newer gpuplan brings newer prices; on equal dates, the refreshed price
    wins. An offer that its provider no longer lists is left out, unless the packaged price is of a later day.
    Rows of a provider are sorted by instance type, region and purchase option.
    """
    merged: dict[tuple[str, str, str, str], Offer] = {
        (o.provider, o.instance_type, o.region, o.purchase): o for o in packaged
    }
    before = list(merged)
    for provider in store.providers:
        for unlisted, day in store.gone(provider).items():
            packaged_offer = merged.get((provider, *unlisted))
            if packaged_offer is not None and (packaged_offer.price_as_of or "") <= day:
                del merged[provider, *unlisted]
        for offer in store.offers(provider):
            key = (provider, *offer.key)
            known = merged.get(key)
            if known is None or (offer.price_as_of or "") >= (known.price_as_of or ""):
                merged[key] = offer
    if list(merged) == before:
        return tuple(merged.values())
    return tuple(merged[key] for key in sorted(merged))

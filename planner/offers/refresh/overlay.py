"""Refreshed prices in their places among those that came with gpuplan."""

from __future__ import annotations

from collections.abc import Sequence

from ..rows import Offer
from .store import Store

__all__ = ["with_refreshed"]


def with_refreshed(packaged: Sequence[Offer], store: Store) -> tuple[Offer, ...]:
    """Return the packaged offers with refreshed prices in their places, and refreshed offers that were not there.

    The later date wins, so that a newer gpuplan brings newer prices; on one day, the refreshed price does. Of a
    provider, rows stay in order of instance type, region and purchase option.
    """
    merged: dict[tuple[str, str, str, str], Offer] = {
        (o.provider, o.instance_type, o.region, o.purchase): o for o in packaged
    }
    before = len(merged)
    for provider in store.providers:
        for offer in store.offers(provider):
            key = (provider, *offer.key)
            known = merged.get(key)
            if known is None or (offer.price_as_of or "") >= (known.price_as_of or ""):
                merged[key] = offer
    if len(merged) == before:
        return tuple(merged.values())
    return tuple(merged[key] for key in sorted(merged))

"""Reference price of a machine with a given accelerator."""

from __future__ import annotations

from collections.abc import Container, Iterable

from .rows import CPU, Offer, Status

__all__ = ["CLOUDS", "find_reference_prices"]

CLOUDS = ("aws", "azure", "gcp")
PREFERENCE: tuple[Status, ...] = ("active", "legacy", "retired", "historical")


def _sort_key(offer: Offer) -> tuple[object, ...]:
    return (
        PREFERENCE.index(offer.status),
        offer.usd_per_hour,
        offer.provider,
        offer.instance_type,
        offer.region,
    )


def find_reference_prices(
    offers: Iterable[Offer], *, providers: Container[str] | None = None
) -> dict[tuple[str, float], Offer]:
    """Return the cheapest complete on-demand machine for each accelerator and number of devices.

    Active offers are preferred to legacy ones, and those to retired ones, so that a retired chip has its last
    listed price. CPU hosts are excluded.

    Args:
        offers: Current and former offers.
        providers: Accepted providers; all if None.
    """
    best: dict[tuple[str, float], Offer] = {}
    for offer in offers:
        counts = offer.purchase == "on_demand" and offer.complete and offer.usd_per_hour
        if (
            not counts
            or offer.accelerator == CPU
            or (providers is not None and offer.provider not in providers)
        ):
            continue
        key = (offer.accelerator, offer.devices)
        if key not in best or _sort_key(offer) < _sort_key(best[key]):
            best[key] = offer
    return best

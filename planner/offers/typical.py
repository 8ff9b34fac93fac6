"""What a machine with some accelerator costs, when only the accelerator is named."""

from __future__ import annotations

from collections.abc import Container, Iterable

from .rows import CPU, Offer, Status

__all__ = ["CLOUDS", "machine_prices"]

CLOUDS = ("aws", "azure", "gcp")
PREFERENCE: tuple[Status, ...] = ("active", "legacy", "retired", "historical")


def _order(offer: Offer) -> tuple[object, ...]:
    return (
        PREFERENCE.index(offer.status), offer.usd_per_hour, offer.provider, offer.instance_type, offer.region,
    )  # fmt: skip


def machine_prices(
    offers: Iterable[Offer], *, providers: Container[str] | None = None
) -> dict[tuple[str, float], Offer]:
    """Return the cheapest complete on-demand machine for each accelerator and number of devices.

    A machine that can be had goes before one that is being withdrawn, and that before one that is gone: the
    price of a retired chip is the one it was last listed at. Hosts without an accelerator are not among them.

    Args:
        offers: What is or was for rent.
        providers: Who may sell it; anybody when None.
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
        if key not in best or _order(offer) < _order(best[key]):
            best[key] = offer
    return best

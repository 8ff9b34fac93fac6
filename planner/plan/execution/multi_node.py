"""Several equal machines that share the work, as one offer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import NoAnswerError
from ..cost_terms import OWNED

if TYPE_CHECKING:
    from ...offers.rows import Offer

__all__ = ["expand_hosts", "rent_hosts"]

NOTEBOOKS = ("colab", "kaggle")


def rent_hosts(offer: Offer, hosts: int) -> Offer:
    """Return an offer of several equal machines, with devices, vCPUs, memory and price summed.

    Args:
        offer: One machine.
        hosts: Number of machines [-].
    """
    if hosts == 1:
        return offer
    price = offer.usd_per_hour
    return replace(
        offer,
        hosts=hosts,
        devices=hosts * offer.devices,
        vcpus=None if offer.vcpus is None else hosts * offer.vcpus,
        memory_gib=None if offer.memory_gib is None else hosts * offer.memory_gib,
        usd_per_hour=None if price is None else hosts * price,
    )


def expand_hosts(offers: Iterable[Offer], hosts: Sequence[int], *, own: Offer | None) -> tuple[Offer, ...]:
    """Return every offer for each number of machines, as far as it can be combined.

    Notebooks, the user's own machines, shares of a GPU, parts of a machine and hosts without accelerators are
    available as single machines only.

    Args:
        offers: Offers of one machine each.
        hosts: Numbers of machines [-].
        own: This machine.

    Raises:
        NoAnswerError: No offer can be combined, and single machines are not requested.
    """
    from ...offers.rows import CPU

    def joins(offer: Offer) -> bool:
        alone = offer.provider in (*OWNED, *NOTEBOOKS) or offer is own or offer.accelerator == CPU
        return offer.complete and offer.devices >= 1 and not alone

    found = tuple(
        rent_hosts(offer, count) for offer in offers for count in hosts if count == 1 or joins(offer)
    )
    if not found:
        raise NoAnswerError(
            "none of these offers can be rented as several machines that share the work",
            hint="add `--hosts 1`, or select other offers",
        )
    return found

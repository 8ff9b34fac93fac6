"""Several equal machines that share the work: what they are together, and who rents them out."""

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
    """Return so many of a machine: their devices, vCPUs, memory and price added up.

    Args:
        offer: One machine.
        hosts: How many [-].
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
    """Return every offer in each number of machines; alone what cannot be joined to its like.

    Notebooks, one's own machines, shares of a GPU, parts of a machine and hosts without accelerators stand alone.

    Args:
        offers: One machine each.
        hosts: Numbers of machines [-].
        own: This machine.

    Raises:
        NoAnswerError: None of them can be joined, and no single machine is asked for.
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
            "none of these machines can be joined to its like",
            hint="add `--hosts 1`, or ask for other offers",
        )
    return found

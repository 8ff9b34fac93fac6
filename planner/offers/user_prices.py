"""The user's own machines and committed prices as offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from .aliases import AcceleratorNames
from .rows import Offer

if TYPE_CHECKING:
    from ..settings_entries import CommittedPrice, OwnMachine

OWN_PROVIDER = "own"
OWN_SOURCE = "gpuplan.toml of the user"


def build_own_offers(machines: Iterable[OwnMachine], names: AcceleratorNames) -> tuple[Offer, ...]:
    """Build offers of the provider ``own`` from the user's machines.

    UsageError if an accelerator is not in the catalog.
    """
    return tuple(
        Offer(
            provider=OWN_PROVIDER,
            instance_type=machine.name,
            accelerator=names.resolve(machine.accelerator),
            devices=machine.devices,
            vcpus=machine.vcpus,
            memory_gib=machine.memory_gib,
            region=OWN_PROVIDER,
            purchase="on_demand",
            usd_per_hour=machine.usd_per_hour,
            price_as_of=None,
            price_source=OWN_SOURCE,
            status="active",
            note=machine.note or "your own machine: its purchase price is not included",
        )
        for machine in machines
    )


def apply_committed_prices(
    offers: Sequence[Offer], committed: Sequence[CommittedPrice], *, today: date
) -> tuple[Offer, ...]:
    """Replace list prices by committed ones; the note keeps the list price."""
    if not committed:
        return tuple(offers)
    return tuple(_apply_commitment(offer, committed, today) for offer in offers)


def _apply_commitment(offer: Offer, committed: Sequence[CommittedPrice], today: date) -> Offer:
    """Return an offer at its committed price, or unchanged."""
    from ..settings_entries import find_committed_price

    entry = find_committed_price(offer, committed, today=today)
    if entry is None:
        return offer
    listed = "no list price" if offer.usd_per_hour is None else f"list price {offer.usd_per_hour} USD/h"
    term = f" until {entry.until}" if entry.until else ""
    notes = (f"committed price{term}, {listed}", entry.note, offer.note)
    return replace(
        offer,
        usd_per_hour=entry.usd_per_hour,
        price_as_of=None,
        price_source=OWN_SOURCE,
        estimated=False,
        note="; ".join(note for note in notes if note),
    )

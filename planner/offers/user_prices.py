"""The user's own machines and committed prices as offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from ..errors import UsageError
from .aliases import AcceleratorNames
from .rows import Offer

if TYPE_CHECKING:
    from ..settings_entries import CommittedPrice, OwnMachine
    from .rows import Accelerator

OWN_PROVIDER = "own"
HOST_W = 150.0  # assumed for a desktop in training: processor, memory, fans, power supply losses
USD_PER_KWH = 0.17
OWN_SOURCE = "gpuplan.toml of the user"


def build_own_machine(
    accelerator: Accelerator,
    *,
    devices: float = 1.0,
    power_w: float | None = None,
    usd_per_kwh: float = USD_PER_KWH,
) -> OwnMachine:
    """Build a machine of the user that costs its electricity; UsageError if its power is not known.

    `power_w` is that during training; None for that of the boards and `HOST_W` [W].
    """
    from ..settings_entries import OwnMachine

    name = accelerator.name
    power_w = require_power_w(accelerator, devices) if power_w is None else power_w
    usd_per_hour = Decimal(str(round(power_w / 1000.0 * usd_per_kwh, 6)))
    note = f"your own machine: electricity, {power_w:g} W at ${usd_per_kwh:g} per kWh"
    label = name if devices == 1 else f"{devices:g}x{name}"
    return OwnMachine(name=label, accelerator=name, devices=devices, usd_per_hour=usd_per_hour, note=note)


def require_power_w(accelerator: Accelerator, devices: float) -> float:
    """Return the power of a desktop in training [W]; UsageError if that of its boards is not known."""
    if accelerator.tdp_w is None:
        raise UsageError(f"the power of {accelerator.name} is not known", hint="add `--assume power_w=450`")
    return devices * accelerator.tdp_w + HOST_W


def build_own_offers(machines: Iterable[OwnMachine], names: AcceleratorNames) -> tuple[Offer, ...]:
    """Build offers of the provider ``own``; UsageError if an accelerator is not in the catalog."""
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
    from ..settings_entries import find_committed_price

    def apply(offer: Offer) -> Offer:
        entry = find_committed_price(offer, committed, today=today)
        if entry is None:
            return offer
        listed = "no list price" if offer.usd_per_hour is None else f"list price {offer.usd_per_hour} USD/h"
        term = f" until {entry.until}" if entry.until else ""
        note = "; ".join(filter(None, (f"committed price{term}, {listed}", entry.note, offer.note)))
        return replace(
            offer,
            usd_per_hour=entry.usd_per_hour,
            price_as_of=None,
            price_source=OWN_SOURCE,
            estimated=False,
            note=note,
        )

    return tuple(map(apply, offers))

"""The offers of one answer together: whom each is compared with, worked out when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from .carbon import energy_kwh, machine_power_w
from .scaling_note import scaling_against, singles_of

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..units import Interval
    from .limiter import Feed
    from .offer_estimate import OfferEstimate
    from .phases import Schedule
    from .scaling_note import Scaling
    from .spot_outlook import SpotOutlook
    from .terms import Bounds, Terms

__all__ = ["Market"]


class Market:
    """What offers of one answer need to know of each other, and of the terms.

    Ranking asks for none of it, and most offers are never shown: nothing is worked out before it is asked for.

    Args:
        terms: What is assumed of power and grids.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.offers: Sequence[OfferEstimate] = ()
        self.pictures: Feed | None = None  # how fast a host would decode images, where nothing was said
        self._powers: dict[tuple[str, str, int], Bounds | None] = {}
        self._starved: dict[object, str] = {}
        self._energies: dict[object, tuple[Schedule, Interval | None]] = {}

    def power_w(self, one: OfferEstimate) -> Bounds | None:
        """Return what an offer's machine draws while it trains; None when unknown [W]."""
        machine = (one.offer.provider, one.offer.instance_type, one.offer.hosts)
        if machine not in self._powers:
            self._powers[machine] = machine_power_w(one.selected, self.terms)
        return self._powers[machine]

    def energy_kwh(self, one: OfferEstimate) -> Interval | None:
        """Return the energy of the run on an offer, the same for all that share machine and run [kWh]."""
        offer, schedule = one.offer, one.schedule
        if schedule is None:
            return None
        key = (id(schedule), offer.provider, offer.instance_type, offer.hosts)
        if key not in self._energies:
            power_w = self.power_w(one)
            # the schedule too, so that its id stays its own
            self._energies[key] = schedule, power_w and energy_kwh(schedule.total_s, power_w)
        return self._energies[key][1]

    def g_co2_per_kwh(self, one: OfferEstimate) -> float | None:
        """Return how dirty the grid of an offer's region is; None when unknown [g/kWh]."""
        return self.terms.g_co2_per_kwh(one.offer.provider, one.offer.region)

    def scaling(self, one: OfferEstimate) -> Scaling | None:
        """Return what an offer's devices bring against one of them; None for one, and where one is not offered."""
        return scaling_against(one, self._singles)

    def starved(self, one: OfferEstimate) -> str:
        """Return what a host could not feed if it had to decode images; empty where it could, or none are fed."""
        if self.pictures is None:
            return ""
        host = (id(one.projection), one.offer.vcpus, one.offer.memory_gib)
        if host not in self._starved:
            self._starved[host] = self._unfed(one)
        return self._starved[host]

    def _unfed(self, one: OfferEstimate) -> str:
        step_s, selected = one.projection.step_time_s, one.selected
        if self.pictures is None or step_s is None:
            return ""
        found = self.pictures.narrowest(one.offer, selected.accelerator)
        able = one.projection.run.global_batch_size / step_s.mid
        if found is None or found[1][1] >= able:
            return ""
        rate = found[1][1]
        return f"decoding JPEG, {found[0]} would feed {rate:,.0f} of the {able:,.0f} samples/s: see `--feed`"

    def compared(self, one: OfferEstimate) -> SpotOutlook | None:
        """Return an offer's outlook, with what it saves against the same machine there on demand."""
        outlook, saves = one.outlook, self.saves_share(one)
        if outlook is None or saves is None:
            return outlook
        return outlook.against(saves)

    def saves_share(self, one: OfferEstimate) -> float | None:
        """Return what an offer saves against the same machine there on demand; None when that is not known [-]."""
        on_demand_nano = self._on_demand_nano.get(_machine(one.offer))
        return None if one.bill is None or not on_demand_nano else 1.0 - one.bill.mid_nano / on_demand_nano

    @cached_property
    def _singles(self) -> dict[object, OfferEstimate]:
        return singles_of(self.offers)

    @cached_property
    def _on_demand_nano(self) -> dict[tuple[str, str, str, int], int]:
        return {
            _machine(one.offer): one.bill.mid_nano
            for one in self.offers
            if one.offer.purchase == "on_demand" and one.bill
        }


def _machine(offer: Offer) -> tuple[str, str, str, int]:
    """Return what is compared at its purchase options."""
    return offer.provider, offer.instance_type, offer.region, offer.hosts

"""Comparisons between the offers of one answer, computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..result.scaling_efficiency import compare_with_single_device, find_single_device_offers
from .carbon import energy_kwh, machine_power_w

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...units import Interval
    from ..cost_terms import Bounds, CostTerms
    from ..execution.input_pipeline import InputPipeline
    from ..result.device_estimate import DeviceEstimate
    from ..result.scaling_efficiency import ScalingEfficiency
    from ..select import OfferContext
    from .bill import Bill, UnpricedRun
    from .timeline import Timeline

_Machine = tuple[str, str, str, int]  # provider, instance type, region, hosts


class Market:
    """Comparisons between the offers of an estimate.

    Computed on demand, since ranking needs none of them and most offers are never shown.

    Args:
        terms: Assumptions on power and grids.
        offers: All offers with their devices.
        runs: Unpriced run of each offer.
        pictures: Assumed rate of decoding images, if the user did not describe the input; else None.
    """

    def __init__(
        self,
        terms: CostTerms,
        offers: Sequence[OfferContext],
        runs: Sequence[UnpricedRun],
        pictures: InputPipeline | None = None,
    ) -> None:
        self.terms, self.offers, self.runs, self.pictures = terms, offers, runs, pictures
        self._known_nano: dict[_Machine, int | None] = {}
        self._powers: dict[tuple[str, str, int], Bounds | None] = {}
        self._starved: dict[object, str] = {}
        self._energies: dict[object, Interval | None] = {}

    def power_w(self, selected: OfferContext) -> Bounds | None:
        """Return the power of an offer's machine during training; None when unknown [W]."""
        offer = selected.offer
        machine = (offer.provider, offer.instance_type, offer.hosts)
        if machine not in self._powers:
            self._powers[machine] = machine_power_w(selected, self.terms)
        return self._powers[machine]

    def energy_kwh(self, selected: OfferContext, timeline: Timeline | None) -> Interval | None:
        """Return the energy of a run on an offer, cached by machine and run [kWh]."""
        offer = selected.offer
        if timeline is None:
            return None
        key = (timeline.total_s, offer.provider, offer.instance_type, offer.hosts)
        if key not in self._energies:
            power_w = self.power_w(selected)
            self._energies[key] = power_w and energy_kwh(timeline.total_s, power_w)
        return self._energies[key]

    def scaling(self, offer: Offer, device_estimate: DeviceEstimate) -> ScalingEfficiency | None:
        """Return the speedup of an offer's devices over one; None for one device, or if one is not offered."""
        return compare_with_single_device(offer, device_estimate, self._singles)

    def starved(self, selected: OfferContext, device_estimate: DeviceEstimate) -> str:
        """Return a warning if the host would decode images too slowly; else empty."""
        if self.pictures is None:
            return ""
        offer, accelerator = selected.offer, selected.accelerator
        machine = (accelerator and accelerator.name, offer.devices, offer.vcpus, offer.memory_gib)
        host = (*machine, device_estimate.step_time_s, device_estimate.run.global_batch_size)
        if host not in self._starved:
            self._starved[host] = _starved(self.pictures, selected, device_estimate)
        return self._starved[host]

    def saves_share(self, offer: Offer, bill: Bill) -> float | None:
        """Return the share saved against the same machine and region on demand; None if unknown [-]."""
        machine = _machine(offer)
        if machine not in self._known_nano:
            on_demand, run = self._on_demand.get(machine, (None, None))
            other = None if on_demand is None or run is None else run.bill(on_demand.usd_per_hour)
            self._known_nano[machine] = None if other is None else other.mid_nano
        on_demand_nano = self._known_nano[machine]
        return 1.0 - bill.mid_nano / on_demand_nano if on_demand_nano else None

    @cached_property
    def _on_demand(self) -> dict[_Machine, tuple[Offer, UnpricedRun]]:
        """Offers on demand whose run can be billed, by machine."""
        return {
            _machine(one.offer): (one.offer, run)
            for one, run in zip(self.offers, self.runs, strict=True)
            if one.offer.purchase == "on_demand"
            and run.cost_basis is not None
            and one.offer.usd_per_hour is not None
        }

    @cached_property
    def _singles(self) -> dict[object, tuple[Offer, DeviceEstimate]]:
        return find_single_device_offers(zip(self.offers, self.runs, strict=True))


def _machine(offer: Offer) -> _Machine:
    """Return the identity of a machine, equal for its purchase options."""
    return offer.provider, offer.instance_type, offer.region, offer.hosts


def _starved(pictures: InputPipeline, selected: OfferContext, device_estimate: DeviceEstimate) -> str:
    able = device_estimate.samples_per_s
    found = None if able is None else pictures.narrowest(selected.offer, selected.accelerator)
    if able is None or found is None:
        return ""
    part, (_, rate, _) = found
    if rate >= able.mid:
        return ""
    return f"decoding JPEG, {part} would feed {rate:,.0f} of the {able.mid:,.0f} samples/s: see `--feed`"

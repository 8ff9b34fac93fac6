"""Comparisons between the offers of one answer, on demand: speedup, energy and carbon dioxide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..records import Frozen
from ..units import SECONDS_PER_HOUR, Interval
from .cost_terms import Bounds, CostTerms

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from .bill import Bill, UnpricedRun
    from .device_estimate import DeviceEstimate
    from .input_pipeline import InputPipeline
    from .question import OfferContext
    from .timeline import Timeline


class ScalingEfficiency(Frozen):
    """Several devices relative to one of the same kind, per sample and under weak scaling: `offers[].scaling`."""

    devices: float  # number of devices of the offer [-]
    speedup: float  # throughput relative to one device [-]
    efficiency: float  # speedup / devices [-]
    cost_ratio: float | None  # cost per sample relative to one device; None without both prices [-]

    @property
    def note(self) -> str:
        """Speedup and cost in a sentence."""
        fast = f"{self.devices:g} devices: {self.speedup:.1f}x as fast as one"
        if self.cost_ratio is None:
            return fast
        change = 100.0 * (self.cost_ratio - 1.0)
        if abs(change) < 0.5:
            return f"{fast}, for the same money"
        return f"{fast}, {abs(change):.0f} % {'more expensive' if change > 0 else 'cheaper'}"


W_PER_KW = 1000.0
G_PER_KG = 1000.0
MEAN_VCPU_LOAD = 0.5  # Cloud Carbon Footprint, Methodology: where the load is not known [-]


def machine_power_w(selected: OfferContext, terms: CostTerms) -> Bounds | None:
    """Return the power drawn during training, data-centre overhead included; None if unknown [W]."""
    offer, accelerator = selected.offer, selected.accelerator
    cost, share = terms.provider_cost(offer.provider), terms.bounds("power_share", "any")
    if accelerator is None or share is None:
        return None
    overhead = 1.0 if selected.place == "local" else (cost.pue if cost else None)
    if overhead is None:
        return None
    host = None  # full power of the vCPUs if they do the training
    idle_w, full_w = (None, None) if cost is None else (cost.vcpu_idle_w, cost.vcpu_full_w)
    if idle_w is not None and full_w is not None and offer.vcpus is not None:
        load = 1.0 if accelerator.kind == "cpu" else MEAN_VCPU_LOAD
        host = offer.vcpus * (idle_w + load * (full_w - idle_w))
    if accelerator.kind == "cpu":
        return None if host is None else (overhead * host, overhead * host, overhead * host)
    if accelerator.tdp_w is None:
        return None
    low, mid, high = (overhead * (offer.devices * accelerator.tdp_w * part + (host or 0.0)) for part in share)
    return (low, mid, high)


def energy_kwh(time_s: Interval, power_w: Bounds) -> Interval:
    """Return the energy of a time at a constant power, for each bound [kWh].

    Example:
        >>> energy_kwh(Interval(low=3600.0, mid=7200.0, high=7200.0), (500.0, 500.0, 1000.0)).mid
        1.0
    """
    low, mid, high = (
        time * power / SECONDS_PER_HOUR / W_PER_KW
        for time, power in zip((time_s.low, time_s.mid, time_s.high), power_w, strict=True)
    )
    return Interval(low=low, mid=mid, high=high)


def co2_kg(energy: Interval, *, g_co2_per_kwh: float) -> Interval:
    """Return the carbon dioxide of some energy at the yearly mean of a grid, without certificates [kg]."""
    return energy.scaled(g_co2_per_kwh / G_PER_KG)


T = TypeVar("T")


class Market:
    """Comparisons between offers, each with its run: on demand, since most offers are never shown.

    `pictures` is the assumed rate of decoding images, if the user did not describe the input.
    """

    def __init__(
        self,
        terms: CostTerms,
        offers: Sequence[OfferContext],
        runs: Sequence[UnpricedRun],
        pictures: InputPipeline | None = None,
    ) -> None:
        self.terms, self.offers, self.runs, self.pictures = terms, offers, runs, pictures
        self._known: dict[object, Any] = {}  # by comparison and what it depends on

    def energy_kwh(self, selected: OfferContext, timeline: Timeline | None) -> Interval | None:
        """Return the energy of a run on an offer, cached by machine and run; None when unknown [kWh]."""
        if timeline is None:
            return None
        offer, total_s = selected.offer, timeline.total_s

        def compute() -> Interval | None:
            power_w = machine_power_w(selected, self.terms)
            return None if power_w is None else energy_kwh(total_s, power_w)

        return self._find(("energy", total_s, offer.provider, offer.instance_type, offer.hosts), compute)

    def co2_kg(self, offer: Offer, energy: Interval | None) -> Interval | None:
        """Return the carbon dioxide of the energy of a run on an offer; None when unknown [kg]."""
        g_co2_per_kwh = self.terms.g_co2_per_kwh(offer.provider, offer.region)
        if energy is None or g_co2_per_kwh is None:
            return None
        key = ("co2", id(energy), g_co2_per_kwh)
        return self._find(key, lambda: co2_kg(energy, g_co2_per_kwh=g_co2_per_kwh))

    def scaling(self, offer: Offer, device_estimate: DeviceEstimate) -> ScalingEfficiency | None:
        """Return the speedup of an offer's devices over one; None for one device, or if one is not offered."""
        single = None if offer.devices <= 1 else self._singles.get(_kind(offer))
        rate = device_estimate.samples_per_s
        single_rate = None if single is None else single[1].samples_per_s
        if single is None or rate is None or single_rate is None:
            return None
        speedup, cost_ratio, devices = rate.mid / single_rate.mid, None, offer.devices
        if offer.usd_per_hour and single[0].usd_per_hour:
            cost_ratio = float(offer.usd_per_hour) / float(single[0].usd_per_hour) / speedup
        efficiency = speedup / devices
        return ScalingEfficiency(devices=devices, speedup=speedup, efficiency=efficiency, cost_ratio=cost_ratio)

    def starved(self, selected: OfferContext, device_estimate: DeviceEstimate) -> str:
        """Return a warning if the host would decode images too slowly; else empty."""
        pictures, able = self.pictures, device_estimate.samples_per_s
        if pictures is None or able is None:
            return ""
        offer, accelerator = selected.offer, selected.accelerator
        host = ("starved", accelerator and accelerator.name, offer.devices, offer.vcpus, offer.memory_gib)
        found = self._find(host, lambda: pictures.narrowest(offer, accelerator))
        if found is None or found[1][1] >= able.mid:
            return ""
        part, (_, rate, _) = found
        return f"decoding JPEG, {part} would feed {rate:,.0f} of the {able.mid:,.0f} samples/s: see `--feed`"

    def saves_share(self, offer: Offer, bill: Bill) -> float | None:
        """Return the share saved against the same machine and region on demand; None if unknown [-]."""
        machine = _machine(offer)
        on_demand = self._on_demand.get(machine)
        if on_demand is None:
            return None
        other = self._find(("bill", machine), lambda: on_demand[1].price(on_demand[0].usd_per_hour))
        return 1.0 - bill.nano[1] / other.nano[1] if other is not None and other.nano[1] else None

    def _find(self, key: object, compute: Callable[[], T]) -> T:
        """Return a comparison that is computed once."""
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    @cached_property
    def _on_demand(self) -> dict[object, tuple[Offer, UnpricedRun]]:
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
        """Cheapest offer of one device of each provider, accelerator, region and purchase option."""
        singles = [
            (one.offer, run.device_estimate)
            for one, run in zip(self.offers, self.runs, strict=True)
            if one.offer.devices == 1 and one.offer.complete and run.device_estimate.step_time_s is not None
        ]
        singles.sort(key=lambda single: float("inf" if single[0].usd_per_hour is None else single[0].usd_per_hour))
        return {_kind(offer): (offer, estimate) for offer, estimate in reversed(singles)}


def _kind(offer: Offer) -> object:
    return offer.provider, offer.accelerator, offer.region, offer.purchase


def _machine(offer: Offer) -> object:
    """Return the identity of a machine, equal for its purchase options."""
    return offer.provider, offer.instance_type, offer.region, offer.hosts

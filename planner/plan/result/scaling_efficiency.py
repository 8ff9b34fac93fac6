"""Speedup and cost of several devices relative to one of the same kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ..pricing.bill import UnpricedRun
    from ..select import OfferContext
    from .device_estimate import DeviceEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingEfficiency:
    """Several devices relative to one of the same kind, per sample and under weak scaling: `offers[].scaling`.

    Args:
        devices: Number of devices of the offer [-].
        speedup: Throughput relative to one device [-].
        efficiency: Speedup / devices [-].
        cost_ratio: Cost per sample relative to one device; None without both prices [-].
    """

    devices: float
    speedup: float
    efficiency: float
    cost_ratio: float | None

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


def compute_scaling(
    *,
    devices: float,
    rate_per_s: float,
    single_rate_per_s: float,
    usd_per_hour: float | None,
    single_usd_per_hour: float | None,
) -> ScalingEfficiency:
    """Compute speedup, efficiency and cost ratio of several devices relative to one.

    Args:
        devices: Number of devices [-].
        rate_per_s, single_rate_per_s: Throughput of all devices, and of one [1/s].
        usd_per_hour, single_usd_per_hour: Prices of both machines; None if unknown or free [USD/h].

    Example:
        >>> compute_scaling(devices=2, rate_per_s=170.0, single_rate_per_s=100.0, usd_per_hour=2.0,
        ...            single_usd_per_hour=1.0).note
        '2 devices: 1.7x as fast as one, 18 % more expensive'
    """
    speedup = rate_per_s / single_rate_per_s
    cost_ratio = None
    if usd_per_hour and single_usd_per_hour:
        cost_ratio = usd_per_hour / single_usd_per_hour / speedup
    return ScalingEfficiency(
        devices=devices, speedup=speedup, efficiency=speedup / devices, cost_ratio=cost_ratio
    )


def find_single_device_offers(
    offers: Iterable[tuple[OfferContext, UnpricedRun]],
) -> dict[object, tuple[Offer, DeviceEstimate]]:
    """Find the cheapest offer of one device of each provider, accelerator, region and purchase option."""
    singles: dict[object, tuple[Offer, DeviceEstimate]] = {}
    for selected, run in offers:
        offer = selected.offer
        if offer.devices == 1 and offer.complete and run.device_estimate.step_time_s is not None:
            kind = _kind(offer)
            if kind not in singles or _price(offer) < _price(singles[kind][0]):
                singles[kind] = offer, run.device_estimate
    return singles


def _kind(offer: Offer) -> object:
    return offer.provider, offer.accelerator, offer.region, offer.purchase


def _price(offer: Offer) -> float:
    return float("inf") if offer.usd_per_hour is None else float(offer.usd_per_hour)


def compare_with_single_device(
    offer: Offer, device_estimate: DeviceEstimate, singles: Mapping[object, tuple[Offer, DeviceEstimate]]
) -> ScalingEfficiency | None:
    """Compare several devices with one of their kind; None for one device, or if one is not offered.

    Args:
        offer: Offer of several devices.
        device_estimate: Estimate of the workload on them.
        singles: Offers of one device, by kind.
    """
    single = None if offer.devices <= 1 else singles.get(_kind(offer))
    rate = device_estimate.samples_per_s
    single_rate = None if single is None else single[1].samples_per_s
    if single is None or rate is None or single_rate is None:
        return None
    prices = (offer.usd_per_hour, single[0].usd_per_hour)
    usd, single_usd = (None if price is None else float(price) for price in prices)
    return compute_scaling(
        devices=offer.devices,
        rate_per_s=rate.mid,
        single_rate_per_s=single_rate.mid,
        usd_per_hour=usd,
        single_usd_per_hour=single_usd,
    )

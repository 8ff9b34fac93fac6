"""Every offer with its schedule and its bill; what several offers share is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..predict.links import machine_joined
from .bill import Bill, rental_usd
from .carbon import machine_power_w
from .charges import Charger
from .limiter import Feed, fed
from .phases import Schedule, Scheduler
from .result import OfferEstimate, Projection
from .spot_outlook import SpotOutlook, SpotOutlooks, SpotTerms

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .select import Selected, Selection
    from .terms import Bounds, Terms

__all__ = ["Pricer", "compare_with_on_demand", "outlooks_for", "price_offers"]


class Pricer:
    """Lays one workload out on offers, and bills it.

    Args:
        workload: What runs.
        terms: What is charged and assumed.
        outlooks: What interruptions do; None: spot machines are taken to stay.
    """

    def __init__(self, workload: Workload, terms: Terms, outlooks: SpotOutlooks | None) -> None:
        self._scheduler = Scheduler(workload, terms)
        self._charger = Charger(workload, terms)
        self._outlooks = outlooks
        self._schedules: dict[object, Schedule | None] = {}
        self._powers: dict[object, Bounds | None] = {}
        self._terms = terms

    def price(self, selected: Selected, projection: Projection) -> OfferEstimate:
        """Return an offer with its schedule and its bill."""
        offer, step_time_s = selected.offer, projection.step_time_s
        outlook = self._outlook(selected, projection)
        schedule = self._schedule(selected, projection, outlook)
        charges = self._charger.charges(offer)
        bill = usd_per_1000_steps = None
        if offer.usd_per_hour is not None and step_time_s is not None:
            duration_s = 1000 * step_time_s.mid
            usd_per_1000_steps = rental_usd(duration_s=duration_s, usd_per_hour=offer.usd_per_hour)
        if offer.usd_per_hour is not None and schedule is not None:
            bill = Bill(schedule, usd_per_hour=offer.usd_per_hour, charges=charges)
        return OfferEstimate(
            offer=offer,
            projection=projection,
            schedule=schedule,
            bill=bill,
            usd_per_1000_steps=usd_per_1000_steps,
            session_s=selected.session_s,
            spot=outlook,
            unbilled=charges.unknown,
            power_w=self._power_w(selected),
            g_co2_per_kwh=self._terms.g_co2_per_kwh(offer.provider, offer.region),
        )

    def _power_w(self, selected: Selected) -> Bounds | None:
        """Return what a machine draws, worked out once for each."""
        machine = (selected.offer.provider, selected.offer.instance_type)
        if machine not in self._powers:
            self._powers[machine] = machine_power_w(selected, self._terms)
        return self._powers[machine]

    def _outlook(self, selected: Selected, projection: Projection) -> SpotOutlook | None:
        """Return what interruptions do; None on demand, or when nothing is known of the run."""
        train_time_s = projection.train_time_s
        if self._outlooks is None or train_time_s is None or selected.offer.purchase != "spot":
            return None
        return self._outlooks.of(selected.offer, train_time_s)

    def _schedule(
        self, selected: Selected, projection: Projection, outlook: SpotOutlook | None
    ) -> Schedule | None:
        """Return the parts of the run, the same object for offers that share them."""
        key = (id(projection), selected.place, selected.session_s, id(outlook))
        if key not in self._schedules:
            self._schedules[key] = self._scheduler.schedule(
                projection, place=selected.place, session_s=selected.session_s, outlook=outlook
            )
        return self._schedules[key]


def price_offers(
    workload: Workload,
    selection: Selection,
    *,
    terms: Terms,
    spot: SpotTerms,
    project: Callable[[Selected], Projection],
    feed: Feed | None = None,
) -> list[OfferEstimate]:
    """Return every offer of a selection with its bill, in order.

    Args:
        workload: What runs.
        selection: The offers.
        terms: What is charged and assumed.
        spot: What the user says about interruptions.
        project: Gives the workload's time on an offer's devices; asked once for each kind and number of them.
        feed: How fast a host makes samples ready; None: no limit.
    """
    pricer = Pricer(workload, terms, outlooks_for(workload, selection, spot))
    projections: dict[object, Projection] = {}
    priced = []
    for selected in selection.offers:
        key = _projection_key(selected)
        if key not in projections:
            projections[key] = project(selected)
        projection = projections[key]
        if feed is not None:
            host = (key, selected.offer.vcpus, selected.offer.memory_gib)
            if host not in projections:
                projections[host] = fed(projection, selected.offer, feed)
            projection = projections[host]
        priced.append(pricer.price(selected, projection))
    return compare_with_on_demand(priced)


def outlooks_for(workload: Workload, selection: Selection, spot: SpotTerms) -> SpotOutlooks | None:
    """Return what works out interruptions for a workload; None when the catalog knows nothing of them."""
    if selection.spot is None:
        return None
    memory = workload.memory
    state_bytes = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return SpotOutlooks(facts=selection.spot, state_bytes=state_bytes, terms=spot)


def compare_with_on_demand(offers: Iterable[OfferEstimate]) -> list[OfferEstimate]:
    """Return the offers, each at spot prices told what it saves against the same machine there on demand."""
    kept = list(offers)
    on_demand = {
        _machine(one): one.bill.mid_nano for one in kept if one.offer.purchase == "on_demand" and one.bill
    }
    return [_compared(one, on_demand.get(_machine(one))) for one in kept]


def _machine(one: OfferEstimate) -> tuple[str, str, str]:
    return one.offer.provider, one.offer.instance_type, one.offer.region


def _compared(one: OfferEstimate, on_demand_nano: int | None) -> OfferEstimate:
    if one.spot is None or one.bill is None or not on_demand_nano:
        return one
    saves = 1.0 - one.bill.mid_nano / on_demand_nano
    return replace(one, spot=replace(one.spot, loses=saves <= 0.0, saves_share=saves))


def _projection_key(selected: Selected) -> object:
    """Return what a projection depends on: the devices, or the machine that computes by itself."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None or accelerator.kind == "cpu" or offer.provider == "local":
        return (offer.provider, offer.instance_type)
    return (accelerator.name, offer.devices, machine_joined(selected.links))

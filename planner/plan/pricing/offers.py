"""Every offer with its schedule and its bill; what several offers share is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...predict.multi_device.interconnect import build_host_spec
from ..execution.input_pipeline import InputPipeline, with_input_bottleneck
from ..result.device_estimate import DeviceEstimate
from ..result.offer_estimate import OfferEstimate
from ..spot.preemption import PreemptionForecast, PreemptionForecaster, SpotTerms
from .bill import CostBasis
from .comparison import Market
from .fees import FeeCalculator
from .offer_terms import UnpricedOffer, UnpricedRun
from .timeline import Timeline, TimelineBuilder

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...workload.model import Workload
    from ..cost_terms import CostTerms
    from ..select import OfferContext, Selection

__all__ = ["Pricer", "build_preemption_forecaster", "price_offers"]


class Pricer:
    """Schedules one workload on offers, with the charges of each.

    Args:
        workload: What runs.
        terms: What is charged and assumed.
        outlooks: What interruptions do; None: spot machines are taken to stay.
    """

    def __init__(self, workload: Workload, terms: CostTerms, outlooks: PreemptionForecaster | None) -> None:
        self.terms = terms
        self._scheduler = TimelineBuilder(workload, terms)
        self._charger = FeeCalculator(workload, terms)
        self._outlooks = outlooks
        self._schedules: dict[object, Timeline | None] = {}
        self._rentals: dict[object, tuple[Timeline | None, CostBasis | None]] = {}

    def kind_of(self, offer: Offer) -> object:
        """Return the key of an offer's lease beside its machine: purchase option, interruptions and discount."""
        purchase = offer.purchase
        discount = id(self.terms.find_discount(offer)) if self.terms.discounts else None
        if purchase != "spot" or self._outlooks is None:
            return purchase if discount is None else (purchase, discount)
        return (discount, self._outlooks.find_interruption_bucket(offer))

    def lease(self, selected: OfferContext, projection: DeviceEstimate) -> UnpricedRun:
        """Return all of an offer that does not depend on its price."""
        offer = selected.offer
        outlook = None if offer.purchase != "spot" else self._outlook(selected, projection)
        charges = self._charger.charges(offer)
        key = (id(projection), selected.place, selected.session_s, id(outlook), id(charges))
        try:
            schedule, rental = self._rentals[key]
        except KeyError:
            schedule = self._schedule(key[:-1], selected, projection, outlook)
            rental = None if schedule is None else CostBasis(schedule, charges)
            self._rentals[key] = schedule, rental
        return UnpricedRun(schedule, rental, outlook, charges)

    def _outlook(self, selected: OfferContext, projection: DeviceEstimate) -> PreemptionForecast | None:
        """Return what interruptions do to a spot machine; None when nothing is known of the run."""
        train_time_s = projection.train_time_s
        if self._outlooks is None or train_time_s is None:
            return None
        return self._outlooks.forecast(selected.offer, train_time_s)

    def _schedule(
        self,
        key: object,
        selected: OfferContext,
        projection: DeviceEstimate,
        outlook: PreemptionForecast | None,
    ) -> Timeline | None:
        """Return the parts of the run, the same object for offers that share them, whoever charges for them."""
        if key not in self._schedules:
            self._schedules[key] = self._scheduler.schedule(
                projection, place=selected.place, session_s=selected.session_s, outlook=outlook
            )
        return self._schedules[key]


def price_offers(
    workload: Workload,
    selection: Selection,
    *,
    terms: CostTerms,
    spot: SpotTerms,
    project: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None = None,
    pictures: InputPipeline | None = None,
) -> list[OfferEstimate]:
    """Return every offer of a selection with its bill, in order.

    Args:
        workload: What runs.
        selection: The offers.
        terms: What is charged and assumed.
        spot: What the user says about interruptions.
        project: Gives the workload's time on an offer's devices; asked once for each kind and number of them.
        feed: How fast a host makes samples ready; None: no limit.
        pictures: How fast it would decode them, where nothing was said and they look like images; else None.
    """
    pricer = Pricer(workload, terms, build_preemption_forecaster(workload, selection, spot))
    leased = _leased(pricer, selection, project, feed)
    market = Market(terms, leased, pictures)
    return [_estimate(one, market) for one in leased]


def _estimate(leased: UnpricedOffer, market: Market) -> OfferEstimate:
    """Return an offer with its bill."""
    selected, projection, lease = leased
    offer = selected.offer
    bill = lease.bill(offer.usd_per_hour)
    unbilled = lease.charges.unknown
    return OfferEstimate(
        offer, selected, projection, lease.schedule, bill, unbilled, lease.outlook, market
    )  # fmt: skip


def _leased(
    pricer: Pricer,
    selection: Selection,
    project: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None,
) -> list[UnpricedOffer]:
    """Return every offer with its lease, in order; offers of one machine share projection and lease."""
    projections: dict[object, DeviceEstimate] = {}
    by_machine: dict[object, tuple[DeviceEstimate, dict[object, UnpricedRun]]] = {}
    leased = []
    for selected in selection.offers:
        offer = selected.offer
        machine = (
            offer.provider, offer.instance_type, offer.accelerator, offer.devices, offer.vcpus, offer.memory_gib,
            offer.hosts,
        )  # fmt: skip
        known = by_machine.get(machine)
        if known is None:
            key = _projection_key(selected)
            if key not in projections:
                projections[key] = project(selected)
            projection = projections[key]
            if feed is not None:
                projection = with_input_bottleneck(projection, offer, feed, selected.accelerator)
            known = by_machine[machine] = (projection, {})
        projection, leases = known
        kind = pricer.kind_of(offer)
        lease = leases.get(kind)
        if lease is None:
            lease = leases[kind] = pricer.lease(selected, projection)
        leased.append(UnpricedOffer(selected, projection, lease))
    return leased


def build_preemption_forecaster(
    workload: Workload, selection: Selection, spot: SpotTerms
) -> PreemptionForecaster | None:
    """Return what works out interruptions for a workload; None when the catalog knows nothing of them."""
    if selection.spot is None:
        return None
    memory = workload.memory
    state_bytes = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return PreemptionForecaster(facts=selection.spot, state_bytes=state_bytes, terms=spot)


def _projection_key(selected: OfferContext) -> object:
    """Return what a projection depends on: the devices, or the machine that computes by itself."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None or accelerator.kind == "cpu" or offer.provider == "local":
        return (offer.provider, offer.instance_type)
    return (accelerator.name, offer.devices, offer.hosts, build_host_spec(selected.links))

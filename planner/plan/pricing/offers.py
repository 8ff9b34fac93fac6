"""Timelines and bills of all offers; parts common to several offers are computed once."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from ...predict.multi_device.interconnect import build_host_spec
from ..execution.input_pipeline import InputPipeline, with_input_bottleneck
from ..result.device_estimate import DeviceEstimate
from ..spot.preemption import PreemptionForecast, PreemptionForecaster, SpotTerms
from .bill import CostBasis, UnpricedRun
from .comparison import Market
from .fees import FeeCalculator
from .offer_table import OfferTable, build_offer_table
from .timeline import Timeline, TimelineBuilder

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...workload.model import Workload
    from ..cost_terms import CostTerms
    from ..select import OfferContext, Selection

# Equal for offers of one machine kind, whatever their region and purchase option.
_machine_key = attrgetter(
    "provider", "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "hosts"
)

__all__ = ["Pricer", "build_preemption_forecaster", "price_offers"]


class Pricer:
    """Computes timelines and charges of one workload on offers.

    Args:
        workload: What runs.
        terms: What is charged and assumed.
        outlooks: Forecaster of interruptions; None: spot machines are assumed to stay.
    """

    def __init__(self, workload: Workload, terms: CostTerms, outlooks: PreemptionForecaster | None) -> None:
        self.terms = terms
        self._scheduler = TimelineBuilder(workload, terms)
        self._charger = FeeCalculator(workload, terms)
        self._outlooks = outlooks
        self._schedules: dict[object, Timeline | None] = {}
        self._runs: dict[object, UnpricedRun] = {}

    def kind_of(self, offer: Offer) -> object:
        """Return the key of an offer's lease beside its machine: purchase option, interruptions and discount."""
        purchase = offer.purchase
        found = self.terms.find_discount(offer) if self.terms.discounts else None
        discount = None if found is None else (found.percent, found.note)
        if purchase != "spot" or self._outlooks is None:
            return purchase if discount is None else (purchase, discount)
        return (discount, self._outlooks.find_interruption_bucket(offer))

    def lease(self, selected: OfferContext, projection: DeviceEstimate) -> UnpricedRun:
        """Return the parts of an offer's run that do not depend on its price."""
        offer = selected.offer
        outlook = None if offer.purchase != "spot" else self._outlook(selected, projection)
        charges = self._charger.charges(offer)
        key = (id(projection), selected.place, selected.session_s, id(outlook), id(charges))
        run = self._runs.get(key)  # it keeps all three objects, so that their ids are not reused
        if run is None:
            schedule = self._schedule(key[:-1], selected, projection, outlook)
            rental = None if schedule is None else CostBasis(schedule, charges)
            run = self._runs[key] = UnpricedRun(projection, schedule, rental, outlook, charges)
        return run

    def _outlook(self, selected: OfferContext, projection: DeviceEstimate) -> PreemptionForecast | None:
        """Return the forecast of interruptions of a spot machine; None if the run length is unknown."""
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
) -> OfferTable:
    """Return every offer of a selection with its price, in order.

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
    runs, run_of = _group_offers(pricer, selection, project, feed)
    market = Market(terms, selection.offers, [runs[index] for index in run_of], pictures)
    return build_offer_table(selection.offers, runs, run_of, market)


def _group_offers(
    pricer: Pricer,
    selection: Selection,
    project: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None,
) -> tuple[list[UnpricedRun], list[int]]:
    """Return a run on each machine kind and purchase option, and the position of each offer's run."""
    devices: dict[object, DeviceEstimate] = {}
    machines: dict[object, DeviceEstimate] = {}
    positions: dict[object, int] = {}
    runs: list[UnpricedRun] = []
    run_of = []
    for selected in selection.offers:
        machine = _machine_key(selected.offer)
        kind = (machine, pricer.kind_of(selected.offer))
        position = positions.get(kind)
        if position is None:
            if machine not in machines:
                machines[machine] = _project_machine(selected, project, feed, devices)
            position = positions[kind] = len(runs)
            runs.append(pricer.lease(selected, machines[machine]))
        run_of.append(position)
    return runs, run_of


def _project_machine(
    selected: OfferContext,
    project: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None,
    known: dict[object, DeviceEstimate],
) -> DeviceEstimate:
    """Return the workload on an offer's machine; machines with the same devices share it unless fed by hosts."""
    key = _projection_key(selected)
    if key not in known:
        known[key] = project(selected)
    if feed is None:
        return known[key]
    return with_input_bottleneck(known[key], selected.offer, feed, selected.accelerator)


def build_preemption_forecaster(
    workload: Workload, selection: Selection, spot: SpotTerms
) -> PreemptionForecaster | None:
    """Build the forecaster of interruptions for a workload; None if the catalog has no data on them."""
    if selection.spot is None:
        return None
    memory = workload.memory
    state_bytes = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return PreemptionForecaster(facts=selection.spot, state_bytes=state_bytes, terms=spot)


def _projection_key(selected: OfferContext) -> object:
    """Return the cache key of a device estimate: the devices, or the machine where the CPU computes."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None or accelerator.kind == "cpu" or offer.provider == "local":
        return (offer.provider, offer.instance_type)
    return (accelerator.name, offer.devices, offer.hosts, build_host_spec(selected.links))

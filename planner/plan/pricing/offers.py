"""Timelines and bills of all offers; parts common to several offers are computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from ...predict.multi_device.interconnect import build_host_spec
from ..execution.input_pipeline import InputPipeline, with_input_bottleneck
from ..result.device_estimate import DeviceEstimate
from ..spot.preemption import PreemptionForecaster, SpotTerms
from .bill import CostBasis, UnpricedRun
from .comparison import Market
from .fees import FeeCalculator
from .money import compute_price_nano
from .offer_table import OfferTable
from .timeline import TimelineBuilder

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...workload.model import Workload
    from ..cost_terms import CostTerms
    from ..select import OfferContext, Selection

# Equal for offers of one machine kind, whatever their region and purchase option.
_machine_key = attrgetter(
    "provider", "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "hosts"
)


class Pricer:
    """Calculator of timelines and fees of a workload on offers.

    Args:
        workload: Workload of the run.
        terms: Costs and assumptions.
        forecaster: Forecaster of preemptions; None assumes that spot machines are never preempted.
    """

    def __init__(self, workload: Workload, terms: CostTerms, forecaster: PreemptionForecaster | None) -> None:
        self.terms = terms
        self._timeline_builder = TimelineBuilder(workload, terms)
        self._fee_calculator = FeeCalculator(workload, terms)
        self._forecaster = forecaster
        self._runs: dict[object, UnpricedRun] = {}

    def list_kinds(self, offers: Iterable[Offer]) -> list[object]:
        """Return the price-independent key of each run on one machine: purchase, preemption class and discount."""
        buckets = {} if self._forecaster is None else self._forecaster.facts.buckets
        kinds: list[object] = [
            buckets.get((one.provider, one.region, one.instance_type), "spot")
            if one.purchase == "spot"
            else one.purchase
            for one in offers
        ]
        if not self.terms.discounts:
            return kinds
        discounts = map(self.terms.find_discount, offers)
        found = [None if one is None else (one.percent, one.note) for one in discounts]
        return list(zip(kinds, found, strict=True))

    def build_run(self, selected: OfferContext, device_estimate: DeviceEstimate) -> UnpricedRun:
        """Return the parts of an offer's run that do not depend on its price."""
        offer, place, session_s = selected.offer, selected.place, selected.session_s
        train_time_s, forecast = device_estimate.train_time_s, None
        if offer.purchase == "spot" and self._forecaster is not None and train_time_s is not None:
            forecast = self._forecaster.forecast(offer, train_time_s)
        fees = self._fee_calculator.compute(offer)
        key = (id(device_estimate), place, session_s, id(forecast), id(fees))
        run = self._runs.get(key)  # it keeps all three objects, so that their ids are not reused
        if run is None:
            timeline = self._timeline_builder.build(
                device_estimate, place=place, session_s=session_s, forecast=forecast
            )
            cost_basis = None if timeline is None else CostBasis(timeline, fees)
            run = self._runs[key] = UnpricedRun(device_estimate, timeline, cost_basis, forecast, fees)
        return run


def price_offers(
    workload: Workload,
    selection: Selection,
    *,
    terms: CostTerms,
    spot: SpotTerms,
    estimate_device: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None = None,
    pictures: InputPipeline | None = None,
) -> OfferTable:
    """Return every offer of a selection with its price, in order.

    Args:
        workload: Workload of the run.
        selection: Selected offers.
        terms: Costs and assumptions.
        spot: Properties of spot machines stated by the user.
        estimate_device: Estimates the workload on an offer's devices; called once per kind and number of devices.
        feed: Input pipeline; None for no limit.
        pictures: Assumed image pipeline, if the user described no input and it looks like images; else None.
    """
    import numpy as np

    pricer = Pricer(workload, terms, build_preemption_forecaster(workload, selection, spot))
    runs, run_of = _group_offers(pricer, selection, estimate_device, feed)
    market = Market(terms, selection.offers, [runs[index] for index in run_of], pictures)
    prices = (context.offer.usd_per_hour for context in selection.offers)
    nano = np.array([None if usd is None else compute_price_nano(usd) for usd in prices], dtype=object)
    return OfferTable(selection.offers, runs, np.array(run_of, dtype=np.intp), nano, market)


def _group_offers(
    pricer: Pricer,
    selection: Selection,
    estimate_device: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None,
) -> tuple[list[UnpricedRun], list[int]]:
    """Return a run on each machine kind and purchase option, and the position of each offer's run."""
    devices: dict[object, DeviceEstimate] = {}
    machines: dict[object, DeviceEstimate] = {}
    positions: dict[object, int] = {}
    runs: list[UnpricedRun] = []
    run_of = []
    offers = [selected.offer for selected in selection.offers]
    kinds = zip(map(_machine_key, offers), pricer.list_kinds(offers), strict=True)
    for selected, kind in zip(selection.offers, kinds, strict=True):
        position = positions.get(kind)
        if position is None:
            machine = kind[0]
            if machine not in machines:
                machines[machine] = _estimate_machine(selected, estimate_device, feed, devices)
            position = positions[kind] = len(runs)
            runs.append(pricer.build_run(selected, machines[machine]))
        run_of.append(position)
    return runs, run_of


def _estimate_machine(
    selected: OfferContext,
    estimate_device: Callable[[OfferContext], DeviceEstimate],
    feed: InputPipeline | None,
    known: dict[object, DeviceEstimate],
) -> DeviceEstimate:
    """Return the workload on an offer's machine; cached by devices, unless the host limits the input."""
    key = _build_device_key(selected)
    if key not in known:
        known[key] = estimate_device(selected)
    if feed is None:
        return known[key]
    return with_input_bottleneck(known[key], selected.offer, feed, selected.accelerator)


def build_preemption_forecaster(
    workload: Workload, selection: Selection, spot: SpotTerms
) -> PreemptionForecaster | None:
    """Build the forecaster of preemptions for a workload; None if the catalog has no data on them."""
    if selection.spot is None:
        return None
    memory = workload.memory
    state_bytes = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return PreemptionForecaster(facts=selection.spot, state_bytes=state_bytes, terms=spot)


def _build_device_key(selected: OfferContext) -> object:
    """Return the cache key of a device estimate: the devices, or the machine where the CPU computes."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None or accelerator.kind == "cpu" or offer.provider == "local":
        return (offer.provider, offer.instance_type)
    return (accelerator.name, offer.devices, offer.hosts, build_host_spec(selected.links))

"""Runs and prices of all offers; a row becomes an object when it is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from ..predict.interconnect import build_host_spec
from ..units import SECONDS_PER_HOUR
from .bill import CostBasis, FeeCalculator, UnpricedRun
from .comparison import Market
from .device_estimate import DeviceEstimate
from .input_pipeline import Feeds, InputPipeline, with_input_bottleneck
from .money import NANO, USD_OF_A_NANO, compute_price_nano, compute_rental_nano
from .offer_estimate import OfferEstimate
from .preemption import PreemptionForecaster, SpotTerms
from .timeline import Access, TimelineBuilder, build_access

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .question import EstimateContext, OfferContext, Selection


class OfferTable(Sequence[OfferEstimate]):
    """Offers in order: many rows with different prices that share a few runs, of which `run_of` names each row's.

    Hourly prices are Python integers, None if unknown [1e-9 USD/h].
    """

    # Columns that ranking adds; takable: to be had, complete, and runs the work in a known time at a known price
    total_usd: NDArray[np.float64]  # what decides between the rows, NaN if unknown [USD]
    takable: NDArray[np.bool_]
    refused: NDArray[np.bool_]  # whether the account's quota alone forbids that

    def __init__(
        self,
        contexts: Sequence[OfferContext],
        runs: Sequence[UnpricedRun],
        run_of: NDArray[np.intp],
        price_nano: NDArray[np.object_],
        market: Market,
    ) -> None:
        self.contexts, self.runs, self.run_of = contexts, runs, run_of
        self.price_nano, self._market = price_nano, market
        self._rows: dict[int, OfferEstimate] = {}
        self._half_widths: dict[object, float] = {}

    def __len__(self) -> int:
        return len(self.contexts)

    @overload
    def __getitem__(self, index: int) -> OfferEstimate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[OfferEstimate, ...]: ...
    def __getitem__(self, index: int | slice) -> OfferEstimate | tuple[OfferEstimate, ...]:
        if isinstance(index, slice):
            return tuple(self[row] for row in range(*index.indices(len(self))))
        row = range(len(self))[index]
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = self._build_row(row)
        return known

    def __iter__(self) -> Iterator[OfferEstimate]:
        return (self._rows.get(row) or self._build_row(row) for row in range(len(self)))  # none is kept

    def _build_row(self, row: int) -> OfferEstimate:
        context, run, total_usd = self.contexts[row], self.runs[self.run_of[row]], float(self.total_usd[row])
        return OfferEstimate(
            **vars(run),
            offer=context.offer,
            selected=context,
            bill=run.price(context.offer.usd_per_hour, half_width=self.price_half_width(row)),
            total_usd=None if math.isnan(total_usd) else total_usd,
            market=self._market,
        )

    def of_offers(self, value: Callable[[OfferContext], Any], dtype: type = float) -> NDArray[Any]:
        """Return a value of each offer as a column."""
        import numpy as np

        return np.array([value(context) for context in self.contexts], dtype)

    def of_runs(self, value: Callable[[UnpricedRun], Any], dtype: type = float) -> NDArray[Any]:
        """Return a value of the run on each offer as a column."""
        import numpy as np

        return np.array([value(run) for run in self.runs], dtype)[self.run_of]

    @cached_property
    def aged_shares(self) -> NDArray[np.float64]:
        """Allowance for prices that are too old to decide alone, by row; 0 for recent ones [-]."""
        return self.of_offers(lambda one: self._market.terms.compute_aged_share(one.offer))

    @cached_property
    def own_h(self) -> NDArray[np.float64]:
        """The user's hours, by row [h]."""
        return self.of_runs(lambda run: run.own_h)

    @cached_property
    def time_s(self) -> NDArray[np.float64]:
        """Time of the run or, if its length is unknown, of a sample, by row; NaN if unknown [s]."""
        return self.of_runs(_compute_time_s)

    @cached_property
    def cost_usd(self) -> NDArray[np.float64]:
        """Cost of the run or, if its length is unknown, of a sample, by row; NaN if unknown [USD]."""
        import numpy as np

        costs = np.full(len(self), np.nan)
        is_billed = self.of_runs(lambda run: run.cost_basis is not None, bool)
        is_priced = self.price_nano != None  # noqa: E711 - compares every element
        billed = np.flatnonzero(is_priced & is_billed)
        costs[billed] = self.compute_costs(billed, 1)
        for row in np.flatnonzero(is_priced & ~is_billed).tolist():
            one = self.runs[self.run_of[row]].device_estimate
            if one.step_time_s is not None:
                duration_s, price = 1000 * one.step_time_s.mid, self.price_nano[row]
                per_1000_usd = compute_rental_nano(duration_s=duration_s, price_nano=price) / NANO
                costs[row] = per_1000_usd / (1000 * one.run.global_batch_size)
        return costs

    @cached_property
    def availability(self) -> NDArray[np.str_]:
        """Whether each row can be had."""
        return self.of_offers(lambda one: one.availability, str)

    @cached_property
    def is_late(self) -> NDArray[np.bool_]:
        """Whether each row may be refused at first, and so loses ties."""
        late: NDArray[np.bool_] = (self.availability == "quota") | (self.availability == "scarce")
        return late

    @cached_property
    def is_free(self) -> NDArray[np.bool_]:
        """Whether each row is free."""
        free: NDArray[np.bool_] = self.price_nano == 0
        return free

    def first_rows(self) -> list[int]:
        """Return the first row of each run, in order."""
        import numpy as np

        _, first = np.unique(self.run_of, return_index=True)
        return sorted(first.tolist())

    def compute_costs(self, rows: NDArray[np.intp], bound: int) -> NDArray[np.float64]:
        """Return the totals of the bills of priced rows at their lower (0), central (1) or upper (2) end [USD]."""
        import numpy as np

        totals = []
        for row, price in zip(rows.tolist(), self.price_nano[rows], strict=True):
            basis = self.runs[self.run_of[row]].cost_basis
            half_width = 0.0 if bound == 1 else self.price_half_width(row)
            totals.append(None if basis is None else basis.compute_total(price, bound, half_width))
        return np.array(totals, dtype=object).astype(float) * USD_OF_A_NANO

    def price_half_width(self, row: int) -> float:
        """Return half of the 80 % interval of ln(today's price / dated price) of a row [-]."""
        offer = self.contexts[row].offer
        key = (offer.provider, offer.purchase, offer.price_as_of)
        known = self._half_widths.get(key)
        if known is None:
            known = self._half_widths[key] = self._market.terms.price_half_width(offer)
        return known

    def reorder(self, order: NDArray[np.intp]) -> OfferTable:
        """Return the rows in another order, with all columns that are known."""
        contexts = [self.contexts[row] for row in order.tolist()]
        table = OfferTable(contexts, self.runs, self.run_of, self.price_nano, self._market)
        columns = {name: value for name, value in vars(self).items() if hasattr(value, "dtype")}
        vars(table).update({name: column[order] for name, column in columns.items()})
        return table

    def reprice(
        self, rows: NDArray[np.intp], build_run: Callable[[OfferContext, DeviceEstimate], UnpricedRun]
    ) -> OfferTable:
        """Return some rows with other runs on the same machines."""
        import numpy as np

        used, first, run_of = np.unique(self.run_of[rows], return_index=True, return_inverse=True)
        contexts = [self.contexts[row] for row in rows.tolist()]
        pairs = zip(first.tolist(), used.tolist(), strict=True)
        runs = [build_run(contexts[place], self.runs[kind].device_estimate) for place, kind in pairs]
        return OfferTable(contexts, runs, run_of, self.price_nano[rows], self._market)


def _compute_time_s(run: UnpricedRun) -> float:
    """Return the time of the run or, if its length is unknown, of a sample; NaN if unknown [s]."""
    if run.timeline is not None:
        return run.timeline.wall_s.mid
    step_time_s = run.device_estimate.step_time_s
    return math.nan if step_time_s is None else step_time_s.mid / run.device_estimate.run.global_batch_size


# Equal for offers of one machine kind, whatever their region and purchase option.
_machine_key = attrgetter("provider", "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "hosts")


class Pricer:
    """Calculator of timelines and fees of equal runs on offers; without a forecaster, spot is never preempted."""

    def __init__(
        self, workload: Workload, terms: CostTerms, forecaster: PreemptionForecaster | None, *, runs: int = 1
    ) -> None:
        self.terms, self.runs = terms, runs
        self._access: dict[object, Access] = {}
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
        offer, place = selected.offer, selected.place
        access = self._access.get((place, selected.limits))  # one object for offers of equal terms
        if access is None:
            access = self._access[place, selected.limits] = build_access(selected, self.terms)
        train_time_s, forecast = device_estimate.train_time_s, None
        if offer.purchase == "spot" and self._forecaster is not None and train_time_s is not None:
            forecast = self._forecaster.forecast(offer, train_time_s)
        fees = self._fee_calculator.compute(offer)
        key = (id(device_estimate), place, id(access), id(forecast), id(fees))
        run = self._runs.get(key)  # it keeps all three objects, so that their ids are not reused
        if run is None:
            timeline = self._timeline_builder.build(
                device_estimate, place=place, access=access, forecast=forecast, runs=self.runs
            )
            cost_basis, own_h = None, 0.0
            if timeline is not None:
                cost_basis = CostBasis(timeline, fees, access=access, runs=self.runs)
                machine_h = self.runs * timeline.total_s.mid / SECONDS_PER_HOUR
                own_h = access.own_hours(sessions=timeline.sessions, machine_h=machine_h)
            run = self._runs[key] = UnpricedRun(
                device_estimate=device_estimate,
                timeline=timeline,
                cost_basis=cost_basis,
                preemption_forecast=forecast,
                fees=fees,
                own_h=own_h,
            )
        return run


def price_offers(
    context: EstimateContext,
    spot: SpotTerms,
    estimate_device: Callable[[OfferContext], DeviceEstimate],
    *,
    use: Callable[[OfferContext], OfferContext] | None,
    feeds: Feeds,
    pictures: InputPipeline | None,
) -> OfferTable:
    """Return every offer of a context with its price, in order.

    `estimate_device` is called once per kind and number of devices. `use` returns the part of a machine that the
    work uses. `pictures` is an assumed pipeline, if the user described no input and it looks like images.
    """
    import numpy as np

    workload, terms, selection = context.workload, context.terms, context.selection
    pricer = Pricer(workload, terms, build_preemption_forecaster(workload, selection, spot))
    devices: dict[object, DeviceEstimate] = {}
    machines: dict[object, DeviceEstimate] = {}
    positions: dict[object, int] = {}  # of the run on each machine kind and purchase option
    runs: list[UnpricedRun] = []
    run_of = []
    offers = [selected.offer for selected in selection.offers]
    kinds = zip(map(_machine_key, offers), pricer.list_kinds(offers), strict=True)
    for selected, kind in zip(selection.offers, kinds, strict=True):
        position = positions.get(kind)
        if position is None:
            machine = kind[0]
            if machine not in machines:
                used = selected if use is None else use(selected)
                offer, accelerator = used.offer, used.accelerator
                key: object = (offer.provider, offer.instance_type)  # a CPU computes with its whole machine
                if accelerator is not None and accelerator.kind != "cpu" and offer.provider != "local":
                    links = used.links if offer.devices > 1 else None  # no others matter to a step
                    key = (accelerator.name, offer.devices, offer.hosts, build_host_spec(links))
                estimate = devices.get(key)
                if estimate is None:
                    estimate = devices[key] = estimate_device(used)
                if feeds:
                    estimate = with_input_bottleneck(estimate, offer, feeds, accelerator)
                machines[machine] = estimate
            position = positions[kind] = len(runs)
            runs.append(pricer.build_run(selected, machines[machine]))
        run_of.append(position)
    market = Market(terms, selection.offers, [runs[index] for index in run_of], pictures)
    prices = (offer.usd_per_hour for offer in offers)
    nano = np.array([None if usd is None else compute_price_nano(usd) for usd in prices], dtype=object)
    return OfferTable(selection.offers, runs, np.array(run_of, dtype=np.intp), nano, market)


def build_preemption_forecaster(
    workload: Workload, selection: Selection, spot: SpotTerms
) -> PreemptionForecaster | None:
    """Build the forecaster of preemptions for a workload; None if the catalog has no data on them."""
    if selection.spot is None:
        return None
    memory = workload.memory
    state_bytes = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return PreemptionForecaster(facts=selection.spot, state_bytes=state_bytes, terms=spot)

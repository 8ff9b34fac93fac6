"""Bill of a run: hours and fees as lines that add up exactly, in Decimal dollars and whole nano-dollars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from ..offers.clouds import OWNED
from ..records import Frozen
from ..units import GB, SECONDS_PER_HOUR, Interval
from .cost_terms import Bounds, CostTerms, compute_price_factor
from .money import (
    NANO,
    USD_OF_A_NANO,
    BillLine,
    Nano,
    UsdInterval,
    compute_price_nano,
    compute_share,
    nano_text,
    nanoseconds_of,
    price_time,
    usd_of,
)
from .timeline import ALWAYS, SECONDS_PER_MONTH, TRAINING, Access, Timeline

if TYPE_CHECKING:
    from ..offers.costs import ProviderCost
    from ..offers.rows import Offer
    from ..settings_entries import Discount
    from ..workload.model import Workload
    from .device_estimate import DeviceEstimate
    from .preemption import PreemptionForecast


PERCENT = Decimal(100)


class Fees(Frozen):
    """Fees besides the machine price."""

    minimum_billed_s: float = 0.0  # minimum billed time [s]
    # Price of the disks at the low, central and high end of their size; None if unknown
    disk_usd_per_hour: Bounds | None = None
    egress_usd: float | None = None  # price of the final download; None if unknown
    # discount, tax: discount on the machine price, and tax on the total, as shares [-]
    discount: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    reasons: Mapping[str, str] = field(default_factory=dict)  # basis of each fee, by item
    unknown: tuple[str, ...] = ()  # items of unknown price


NO_FEES = Fees()
HOURS_PER_MONTH = 730.0  # what the clouds divide a month's price of storage by


class FeeCalculator:
    """Calculator of the fees of a workload on any offer; fees that depend only on the provider are cached."""

    def __init__(self, workload: Workload, terms: CostTerms) -> None:
        self.workload, self.terms = workload, terms
        self._known: dict[object, Fees] = {}

    def compute(self, offer: Offer) -> Fees:
        """Compute the fees on an offer; one object for offers of equal fees."""
        if self.terms.costs is None:
            return NO_FEES
        discount = self.terms.find_discount(offer)
        key = (offer.provider, offer.hosts, discount and (discount.percent, discount.note))
        if key not in self._known:
            self._known[key] = self._compute_new(offer.provider, offer.hosts, discount)
        return self._known[key]

    def _compute_new(self, provider: str, hosts: int, discount: Discount | None) -> Fees:
        """Return a provider's fees for a number of machines, the discount on their price, and the user's tax."""
        cost, tax = self.terms.provider_cost(provider), self.terms.tax
        reasons: dict[str, str] = {}
        minimum_s = 0.0 if cost is None else cost.minimum_billed_s or 0.0
        if cost is not None and minimum_s:
            reasons[f"minimum billing of {minimum_s:g} s"] = cost.minimum_source
        if tax is not None:
            reasons["tax"] = f"{tax.name}, {tax.percent:f} % of everything above"
        if discount is not None:
            note = f" ({discount.note})" if discount.note else ""
            reasons["discount"] = f"{discount.percent:f} % off the machine's price{note}"
        is_own = provider in OWNED
        disk = None if cost is None or is_own else self._disk(cost, hosts, reasons)
        egress = None
        if cost is not None and not is_own and (usd_per_gb := cost.egress_usd_per_gb) is not None:
            given_gb = self.terms.given("egress_gb")
            size_gb = self.workload.memory.parameter_bytes / GB if given_gb is None else given_gb
            reasons["egress"] = f"{size_gb:.2g} GB of weights at ${usd_per_gb:f} a GB; {cost.egress_source}"
            egress = size_gb * float(usd_per_gb)
        prices = {"disk": disk, "egress": egress}
        return Fees(
            minimum_billed_s=minimum_s,
            disk_usd_per_hour=disk,
            egress_usd=egress,
            discount=Decimal(0) if discount is None else discount.percent / PERCENT,
            tax=Decimal(0) if tax is None or is_own else tax.percent / PERCENT,
            reasons=reasons,
            unknown=() if is_own else tuple(item for item, price in prices.items() if price is None),
        )

    def _disk(self, cost: ProviderCost, hosts: int, reasons: dict[str, str]) -> Bounds | None:
        """Return the hourly cost of the disks of all machines; None if unknown [USD/h].

        Unless given, a disk has room for the system image plus the data, where its size is given.
        """
        given, image_gb = self.terms.given("disk_gb"), self.terms.bounds("image_gb", "any")
        usd, data_gb = cost.disk_usd_per_gb_month, self.terms.given("dataset_gb") or 0.0
        if usd is None or (given is None and image_gb is None):
            return None
        low, mid, high = (size + data_gb for size in image_gb or ()) if given is None else (given,) * 3
        machines, rate = f"{hosts} machines with " if hosts > 1 else "", hosts * float(usd) / HOURS_PER_MONTH
        reasons["disk"] = f"{machines}{mid:.3g} GB at ${usd:f} a GB and month; {cost.disk_source}"
        return (low * rate, mid * rate, high * rate)


# Item of a real bill that this one does not have unless the rate of the input pipeline is known.
INPUT_STALLS = "input pipeline stalls"
MACHINE = "machine"  # the item of the machine's hours
PURCHASE = "unused part of the purchase"  # of the smallest pack of units, or of a month


class CostBasis:
    """Timeline and fees of equal runs, shared by the bills of all offers that differ only in the machine price.

    Machine time and the shortest billed one by its item, if the run may be shorter [1e-9 s]; subscription at the
    three bounds, zeros for none, and known costs independent of the machine price [1e-9 USD].
    """

    def __init__(
        self, timeline: Timeline, fees: Fees = NO_FEES, *, access: Access = ALWAYS, runs: int = 1
    ) -> None:
        self.timeline, self.fees, self.runs, self.pack_nano = timeline, fees, runs, access.pack_nano
        wall_s, total_s, least_s = timeline.wall_s, timeline.total_s, fees.minimum_billed_s
        ends = (wall_s.low, wall_s.mid, wall_s.high) if access.month_nano else (0.0, 0.0, 0.0)
        self.months = [access.month_nano * max(1, math.ceil(end / SECONDS_PER_MONTH)) for end in ends]
        self.nanoseconds = nanoseconds_of(total_s)
        is_short = total_s.low < least_s
        self.minimum = {f"minimum billing of {least_s:g} s": round(least_s * NANO)} if is_short else {}
        self.fixed: dict[str, Nano] = {}
        if fees.disk_usd_per_hour is not None:
            low, mid, high = (rate * NANO / SECONDS_PER_HOUR for rate in fees.disk_usd_per_hour)
            self.fixed["disk"] = (round(total_s.low * low), round(total_s.mid * mid), round(total_s.high * high))
        if fees.egress_usd is not None:
            self.fixed["egress"] = (round(fees.egress_usd * NANO),) * 3
        self._fixed_nano = [*map(sum, zip((0, 0, 0), *self.fixed.values(), strict=True))]
        has_least = self.minimum or self.pack_nano or self.months[1]
        self._depends_on_items = bool(has_least or fees.discount or fees.tax or runs != 1)

    @cached_property
    def phase_nanoseconds(self) -> tuple[Nano, ...]:
        """Durations of the run's phases at the three bounds [1e-9 s]."""
        return tuple(nanoseconds_of(phase.time_s) for phase in self.timeline.phases)

    def price_at(self, price_nano: int, bound: int, half_width: float) -> int:
        """Return the machine price at one bound of the run's time: its lower (0), central (1) or upper (2) end.

        `half_width` is that of ln(price) for the price's age; prices in 1e-9 USD/h.
        """
        mid = self.nanoseconds[1]
        if bound == 1 or half_width == 0.0 or mid == 0:
            return price_nano
        ratio, is_upper = self.nanoseconds[bound] / mid, bound == 2
        return round(price_nano * compute_price_factor(time_ratio=ratio, half_width=half_width, upper=is_upper))

    def itemize(self, price_nano: int, bound: int) -> dict[str, int]:
        """Return the items of a bill at one bound, see `price_at`; their sum is the total [1e-9 USD]."""
        machine = price_time(self.nanoseconds[bound], price_nano)
        items = {MACHINE: machine}
        for item, shortest in self.minimum.items():
            items[item] = max(0, price_time(shortest, price_nano) - machine)
        charged = sum(items.values())
        items |= {item: nano[bound] for item, nano in self.fixed.items()}
        if self.fees.discount:
            items["discount"] = -compute_share(charged, self.fees.discount)
        if self.runs != 1:
            items = {item: self.runs * nano for item, nano in items.items()}
        if self.pack_nano or self.months[1]:  # units in packs, or time by the month
            used, step = sum(items.values()), self.pack_nano or 1
            items[PURCHASE] = -(-max(used, self.months[bound]) // step) * step - used
        if self.fees.tax:
            items["tax"] = compute_share(sum(items.values()), self.fees.tax)
        return items

    def compute_total(self, price_nano: int, bound: int, half_width: float) -> int:
        """Return the total of a bill at one bound of the run's time; arguments as of `price_at` [1e-9 USD]."""
        if half_width:
            price_nano = self.price_at(price_nano, bound, half_width)
        if self._depends_on_items:
            return sum(self.itemize(price_nano, bound).values())
        return price_time(self.nanoseconds[bound], price_nano) + self._fixed_nano[bound]


class Bill:
    """Itemized bill of a run with its exact total, at a dated price with the half-width of ln(price) for that."""

    def __init__(self, cost_basis: CostBasis, *, usd_per_hour: Decimal, half_width: float = 0.0) -> None:
        self.cost_basis, self._usd_per_hour, self._half_width = cost_basis, usd_per_hour, half_width

    @cached_property
    def _prices_nano(self) -> list[int]:
        """Price of the machine at the three bounds [1e-9 USD/h]."""
        price_nano, price_at = compute_price_nano(self._usd_per_hour), self.cost_basis.price_at
        return [price_at(price_nano, bound, self._half_width) for bound in range(3)]

    @cached_property
    def _items(self) -> list[dict[str, int]]:
        """The items at the three bounds [1e-9 USD]."""
        return [self.cost_basis.itemize(price, bound) for bound, price in enumerate(self._prices_nano)]

    @cached_property
    def nano(self) -> Nano:
        """Lower end, central estimate and upper end of the sum [1e-9 USD]."""
        price_nano, total = compute_price_nano(self._usd_per_hour), self.cost_basis.compute_total
        return tuple(total(price_nano, bound, self._half_width) for bound in range(3))  # type: ignore[return-value]

    @property
    def usd(self) -> Interval:
        """The same, for comparisons, which have no need of exactness [USD]."""
        low, mid, high = (nano * USD_OF_A_NANO for nano in self.nano)
        return Interval(low=low, mid=mid, high=high)

    @cached_property
    def total(self) -> UsdInterval:
        """Total cost of the run."""
        return UsdInterval(*map(usd_of, self.nano))

    @cached_property
    def lines(self) -> tuple[BillLine, ...]:
        """Items with a duration or an amount; they add up to the total to the nano-dollar."""
        (low, mid, high), basis = self._items, self.cost_basis
        least = basis.pack_nano or basis.months[1]
        because = f"${nano_text(least)[:-7]} is the least that this plan sells; see the setting `notebook_plans`"
        reasons = {**basis.fees.reasons, PURCHASE: because}
        amounts = zip(*(self._price_phases(bound) for bound in range(3)), strict=True)
        phases = zip(basis.timeline.phases, amounts, strict=True)
        lines = [BillLine(phase.item, nano, phase.because, phase.time_s) for phase, nano in phases]
        others = [
            BillLine(item, (low[item], mid[item], high[item]), reasons.get(item, ""))
            for item in mid
            if item != MACHINE
        ]
        return (*lines, *(line for line in others if line.nano[0] or line.nano[2]))

    def total_json(self) -> dict[str, str]:
        """Return the three amounts of the total as text."""
        return dict(zip(("low", "mid", "high"), map(nano_text, self.nano), strict=True))

    def _price_phases(self, bound: int) -> list[int]:
        """Return the cost of each phase at one bound; training takes what rounding leaves [1e-9 USD]."""
        cost_basis, price = self.cost_basis, self._prices_nano[bound]
        prices = [price_time(nanoseconds[bound], price) for nanoseconds in cost_basis.phase_nanoseconds]
        training = next(at for at, phase in enumerate(cost_basis.timeline.phases) if phase.item == TRAINING)
        prices[training] += self._items[bound][MACHINE] - sum(prices)
        return prices


class UnpricedRun(Frozen):
    """Run on a kind of machine, before the machine price."""

    device_estimate: DeviceEstimate  # estimate shared by all offers of the same devices
    timeline: Timeline | None  # timeline of the run; None if the step time is unknown
    cost_basis: CostBasis | None  # basis of its bills; None if the step time is unknown
    preemption_forecast: PreemptionForecast | None  # None on demand, or if the run's time is unknown
    fees: Fees  # fees besides the machine price
    own_h: float = 0.0  # the user's hours; 0 if the run's time is unknown [h]

    def price(self, usd_per_hour: Decimal | None, *, half_width: float = 0.0) -> Bill | None:
        """Return the bill at a dated price [USD/h]; None when the price or the run's time is unknown."""
        if self.cost_basis is None or usd_per_hour is None:
            return None
        return Bill(self.cost_basis, usd_per_hour=usd_per_hour, half_width=half_width)

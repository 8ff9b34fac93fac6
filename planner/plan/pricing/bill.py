"""Bill of a run: lines that add up exactly. Money is Decimal, in nano-dollars at the finest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...frozen import Frozen
from ...units import SECONDS_PER_HOUR, Interval
from .money import (
    NANO,
    Amount,
    BillLine,
    Nano,
    UsdInterval,
    compute_price_nano,
    compute_share,
    nano_text,
    nanoseconds_of,
    price_time,
    usd_interval_of,
)
from .timeline import TRAINING, Timeline, TimelinePhase

if TYPE_CHECKING:
    from ..result.device_estimate import DeviceEstimate
    from ..select import OfferContext
    from ..spot.preemption import PreemptionForecast
    from .timeline import Timeline

__all__ = [
    "NOT_BILLED",
    "NO_FEES",
    "Bill",
    "CostBasis",
    "Fees",
    "UnpricedOffer",
    "UnpricedRun",
    "bill_of_run",
]

# What a real bill may also have and this one does not, by name.
NOT_BILLED: tuple[str, ...] = ("input pipeline stalls",)
MACHINE = "machine"  # the item of the machine's hours
HOURS_PER_MONTH = 730.0  # what the clouds divide a month's price of storage by


class Fees(Frozen):
    """Charges besides the machine's hours, each for the shortest, expected and longest run.

    Args:
        minimum_billed_s: Shortest time that is charged for [s].
        disk_usd_per_hour, egress_usd: None: unknown.
        discount, tax: Share of the machine's price, and of everything [-].
        reasons: What each rests on, by item.
        unknown: Items that cannot be told.
    """

    minimum_billed_s: float = 0.0
    disk_usd_per_hour: tuple[float, float, float] | None = None
    egress_usd: tuple[float, float, float] | None = None
    discount: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    reasons: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


NO_FEES = Fees()


class CostBasis:
    """A timeline under some fees, before the machine's price: common to the bills of many offers.

    Args:
        schedule: The parts of the run.
        charges: Fees beside the machine's hours.

    Attributes:
        nanoseconds: Time on the machine at the three bounds [1e-9 s].
        fixed: Disk and egress where known, which do not depend on the machine's price [1e-9 USD].
    """

    def __init__(self, schedule: Timeline, charges: Fees = NO_FEES) -> None:
        self.schedule = schedule
        self.charges = charges
        self.nanoseconds = nanoseconds_of(schedule.total_s)
        self.fixed = self._compute_fixed()

    @cached_property
    def phase_nanoseconds(self) -> tuple[Nano, ...]:
        """Times of the run's parts at the three bounds [1e-9 s]."""
        return tuple(nanoseconds_of(phase.time_s) for phase in self.schedule.phases)

    @cached_property
    def training(self) -> int | None:
        """Position of the training among the parts; it takes the remainder of rounding."""
        items = [phase.item for phase in self.schedule.phases]
        return items.index(TRAINING) if TRAINING in items else None

    def itemize(self, price_nano: Amount, bound: int) -> dict[str, Amount]:
        """Return the items of a bill at one bound of the run's time; their sum is the total [1e-9 USD].

        Args:
            price_nano: Price of the machine, or a column of prices [1e-9 USD/h].
            bound: 0 for the lower end, 1 for the central estimate, 2 for the upper end.
        """
        charges = self.charges
        machine: Any = price_time(self.nanoseconds[bound], price_nano)
        items = {MACHINE: machine}
        if self.schedule.total_s.low < charges.minimum_billed_s:
            least_s = charges.minimum_billed_s
            missing = price_time(round(least_s * NANO), price_nano) - machine
            items[f"minimum billing of {least_s:g} s"] = missing * (missing > 0)
        charged = sum(items.values())
        items |= {item: nano[bound] for item, nano in self.fixed.items()}
        if charges.discount:
            items["discount"] = -compute_share(charged, charges.discount)
        if charges.tax:
            items["tax"] = compute_share(sum(items.values()), charges.tax)
        return items

    def compute_total(self, price_nano: Amount, bound: int) -> Amount:
        """Return the sum of a bill at one bound, for a price or a column of prices [1e-9 USD]."""
        total, *others = self.itemize(price_nano, bound).values()
        for nano in others:
            total = total + nano
        return total

    def _compute_fixed(self) -> dict[str, Nano]:
        charges, total_s = self.charges, self.schedule.total_s
        fixed: dict[str, Nano] = {}
        if charges.disk_usd_per_hour is not None:
            low, mid, high = (rate * NANO / SECONDS_PER_HOUR for rate in charges.disk_usd_per_hour)
            fixed["disk"] = (round(total_s.low * low), round(total_s.mid * mid), round(total_s.high * high))
        if charges.egress_usd is not None:
            low, mid, high = charges.egress_usd
            fixed["egress"] = (round(low * NANO), round(mid * NANO), round(high * NANO))
        return fixed


class Bill:
    """Lines and their exact sum.

    Args:
        rental: What is paid for.
        usd_per_hour: Price of the machine [USD/h].
    """

    def __init__(self, rental: CostBasis, *, usd_per_hour: Decimal) -> None:
        self.rental = rental
        self._price_nano = compute_price_nano(usd_per_hour)

    @cached_property
    def _items(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """The items at the lower end, the central estimate and the upper end [1e-9 USD]."""
        itemize, price = self.rental.itemize, self._price_nano
        return (itemize(price, 0), itemize(price, 1), itemize(price, 2))

    @cached_property
    def nano(self) -> Nano:
        """Lower end, central estimate and upper end of the sum [1e-9 USD]."""
        low, mid, high = self._items
        return (sum(low.values()), sum(mid.values()), sum(high.values()))

    @property
    def mid_nano(self) -> int:
        """Central estimate of the sum [1e-9 USD]."""
        return self.nano[1]

    @property
    def machine_nano(self) -> int:
        """Central estimate of what the machine's hours cost, without other items [1e-9 USD]."""
        return self._items[1][MACHINE]

    @cached_property
    def total(self) -> UsdInterval:
        """The cost of the run."""
        return usd_interval_of(self.nano)

    @cached_property
    def lines(self) -> tuple[BillLine, ...]:
        """Every item that takes time or money; they add up to the total to the nano-dollar."""
        amounts = zip(*(self._price_phases(bound) for bound in range(3)), strict=True)
        lines = [
            BillLine(phase.item, usd_interval_of(nano), phase.because, phase.time_s)
            for phase, nano in zip(self.rental.schedule.phases, amounts, strict=True)
        ]
        reasons = self.rental.charges.reasons
        lines += [
            BillLine(item, usd_interval_of(nano), reasons.get(item, ""))
            for item, nano in self._list_other_items()
        ]
        return tuple(lines)

    def total_json(self) -> dict[str, str]:
        """Return the three amounts of the total as text."""
        low, mid, high = self.nano
        return {"low": nano_text(low), "mid": nano_text(mid), "high": nano_text(high)}

    def lines_json(self, *, detailed: bool = False) -> list[dict[str, Any]]:
        """Return the lines with their central amounts; in detail also their ranges, times and reasons."""
        if detailed:
            return [line.to_json() for line in self.lines]
        lines = [
            {"item": phase.item, "usd": nano_text(nano)}
            for phase, nano in zip(self.rental.schedule.phases, self._price_phases(1), strict=True)
        ]
        return lines + [{"item": item, "usd": nano_text(nano[1])} for item, nano in self._list_other_items()]

    def _price_phases(self, bound: int) -> list[int]:
        """Return the prices of the run's parts at one bound; they add up to the machine's [1e-9 USD]."""
        rental, price = self.rental, self._price_nano
        prices = [price_time(nanoseconds[bound], price) for nanoseconds in rental.phase_nanoseconds]
        if rental.training is not None:
            prices[rental.training] += self._items[bound][MACHINE] - sum(prices)
        return prices

    def _list_other_items(self) -> list[tuple[str, Nano]]:
        """Return minimum, disk, egress, discount and tax, those that are not zero [1e-9 USD]."""
        low, mid, high = self._items
        others = [(item, (low[item], mid[item], high[item])) for item in mid if item != MACHINE]
        return [(item, nano) for item, nano in others if nano[0] or nano[2]]


def bill_of_run(*, train_time_s: Interval, usd_per_hour: Decimal, charges: Fees = NO_FEES) -> Bill:
    """Return the bill of a run that is nothing but its training steps.

    Args:
        train_time_s: Time of all steps [s].
        usd_per_hour: Price of the offer [USD/h].
        charges: What is charged beside.
    """
    training = TimelinePhase(TRAINING, train_time_s, "")
    return Bill(CostBasis(Timeline((training,), train_time_s), charges), usd_per_hour=usd_per_hour)


class UnpricedRun(NamedTuple):
    """A run on a kind of machine, before its price.

    Args:
        projection: The workload on the machine's devices.
        schedule: The run part by part; None when the time of its steps is unknown.
        rental: What is charged for it; None likewise.
        outlook: What interruptions do to the run; None on demand, or when the run's time is unknown.
        charges: Fees of the provider.
    """

    projection: DeviceEstimate
    schedule: Timeline | None
    rental: CostBasis | None
    outlook: PreemptionForecast | None
    charges: Fees

    def bill(self, usd_per_hour: Decimal | None) -> Bill | None:
        """Return the bill at a price; None when the price or the run's time is unknown."""
        if self.rental is None or usd_per_hour is None:
            return None
        return Bill(self.rental, usd_per_hour=usd_per_hour)


class UnpricedOffer(NamedTuple):
    """An offer with the run on its machine, before its bill."""

    selected: OfferContext
    lease: UnpricedRun

"""The bill of a run: lines that add up exactly. Money is Decimal, in nano-dollars at the finest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from functools import cached_property
from typing import Any

from ...frozen import Frozen
from ...units import SECONDS_PER_HOUR, Interval
from .bill_line import BillLine, UsdInterval
from .money import (
    HALF_AN_HOUR,
    NANO,
    NANOSECONDS_PER_HOUR,
    Nano,
    added,
    each,
    nano_text,
    nanoseconds_of,
    negated,
    priced,
    usd_interval_of,
)
from .timeline import TRAINING, Timeline, TimelinePhase

__all__ = ["NOT_BILLED", "NO_FEES", "Bill", "CostBasis", "Fees", "bill_of_run"]

# What a real bill may also have and this one does not, by name.
NOT_BILLED: tuple[str, ...] = ("input pipeline stalls",)

HOURS_PER_MONTH = 730.0  # what the clouds divide a month's price of storage by


class Fees(Frozen):
    """What is charged beside the machine's hours, each at the soonest, usual and latest.

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
    """A schedule under some charges: what the bills of all offers that share both have in common.

    Args:
        schedule: The parts of the run.
        charges: What is charged beside the machine's hours.
    """

    def __init__(self, schedule: Timeline, charges: Fees = NO_FEES) -> None:
        self.schedule = schedule
        self.charges = charges
        self.nanoseconds = nanoseconds_of(schedule.total_s)
        self.mid_nanoseconds = self.nanoseconds[1]
        self.fixed = self._fixed()
        self.fixed_nano = added(list(self.fixed.values()))
        self.is_plain = not (charges.discount or charges.tax or self.is_short)

    @cached_property
    def phases(self) -> tuple[tuple[TimelinePhase, Nano], ...]:
        """The parts of the run, with their times at the three bounds [1e-9 s]."""
        return tuple((phase, nanoseconds_of(phase.time_s)) for phase in self.schedule.phases)

    @cached_property
    def mid_times(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The parts of the run by name, and their central times [1e-9 s]."""
        return tuple(phase.item for phase, _ in self.phases), tuple(time[1] for _, time in self.phases)

    @cached_property
    def training(self) -> int | None:
        """Where the training is among the parts: what rounding leaves over is its."""
        items, _ = self.mid_times
        return items.index(TRAINING) if TRAINING in items else None

    @cached_property
    def fixed_json(self) -> list[dict[str, Any]]:
        """The lines of a bill that do not depend on the machine's price."""
        return _lines_of(self.fixed)

    @property
    def is_short(self) -> bool:
        """Whether the run may end before the shortest time that is charged for."""
        return self.schedule.total_s.low < self.charges.minimum_billed_s

    def _fixed(self) -> dict[str, Nano]:
        """Return disk and egress, those that are known; the machine's price plays no part [1e-9 USD]."""
        charges, total_s = self.charges, self.schedule.total_s
        extras: dict[str, Nano] = {}
        if charges.disk_usd_per_hour is not None:
            low, mid, high = (rate * NANO / SECONDS_PER_HOUR for rate in charges.disk_usd_per_hour)
            extras["disk"] = (round(total_s.low * low), round(total_s.mid * mid), round(total_s.high * high))
        if charges.egress_usd is not None:
            low, mid, high = charges.egress_usd
            extras["egress"] = (round(low * NANO), round(mid * NANO), round(high * NANO))
        return extras


class Bill:
    """Lines and their exact sum. The sum's centre is worked out at once, the rest when somebody looks.

    Args:
        rental: What is paid for.
        usd_per_hour: Price of the machine [USD/h].

    Attributes:
        mid_nano: Central estimate of the sum [1e-9 USD].
    """

    def __init__(self, rental: CostBasis, *, usd_per_hour: Decimal) -> None:
        self.rental = rental
        self._price_nano = price = int(usd_per_hour * NANO)
        if rental.is_plain:  # as in ``nano``, without the ends: there are thousands of bills
            machine = (rental.mid_nanoseconds * price + HALF_AN_HOUR) // NANOSECONDS_PER_HOUR
            self.mid_nano = machine + rental.fixed_nano[1]
        else:
            self.mid_nano = self.nano[1]

    @property
    def nano(self) -> tuple[int, int, int]:
        """Lower end, central estimate and upper end [1e-9 USD]."""
        machine = self.machine_nano
        if self.rental.is_plain:
            return added((machine, self.rental.fixed_nano))
        return added([machine, *self._beside_the_machine().values()])

    @property
    def machine_nano(self) -> tuple[int, int, int]:
        """What the machine's hours cost, without what is charged beside them [1e-9 USD]."""
        return priced(self.rental.nanoseconds, self._price_nano)

    @property
    def high_nano(self) -> int:
        """Upper end [1e-9 USD]."""
        return self.nano[2]

    @cached_property
    def total(self) -> UsdInterval:
        """What the run costs."""
        return usd_interval_of(self.nano)

    @cached_property
    def lines(self) -> tuple[BillLine, ...]:
        """Every item that takes time or money; they add up to the total to the nano-dollar."""
        phases = [(p, priced(time, self._price_nano)) for p, time in self.rental.phases]
        rest = added([self.machine_nano, *(negated(nano) for _, nano in phases)])
        lines = []
        for phase, nano in phases:
            whole = added([nano, rest]) if phase.item == TRAINING else nano
            lines.append(BillLine(phase.item, usd_interval_of(whole), phase.because, phase.time_s))
        reasons, extras = self.rental.charges.reasons, self._beside_the_machine()
        lines += [
            BillLine(item, usd_interval_of(nano), reasons.get(item, "")) for item, nano in extras.items()
        ]
        return tuple(line for line in lines if line.time_s is not None or line.usd.high or line.usd.low)

    def total_json(self) -> dict[str, str]:
        """Return the three amounts of the total as text."""
        low, mid, high = self.nano
        return {"low": nano_text(low), "mid": nano_text(mid), "high": nano_text(high)}

    def lines_json(self, *, detailed: bool = False) -> list[dict[str, Any]]:
        """Return the lines with their central amounts; in detail also their ranges, times and reasons."""
        if detailed:
            return [line.to_json() for line in self.lines]
        items, _ = self.rental.mid_times
        lines = [
            {"item": item, "usd": nano_text(nano)}
            for item, nano in zip(items, self.mid_phases_nano(), strict=True)
        ]
        if self.rental.is_plain:
            return lines + self.rental.fixed_json
        return lines + _lines_of(self._beside_the_machine())

    def mid_phases_nano(self) -> list[int]:
        """Return what the parts of the run cost, in their order, at the centre [1e-9 USD]."""
        price, (_, times) = self._price_nano, self.rental.mid_times
        mids = [(time * price + HALF_AN_HOUR) // NANOSECONDS_PER_HOUR for time in times]
        whole = (self.rental.mid_nanoseconds * price + HALF_AN_HOUR) // NANOSECONDS_PER_HOUR
        if self.rental.training is not None:
            mids[self.rental.training] += whole - sum(mids)
        return mids

    def _beside_the_machine(self) -> dict[str, Nano]:
        """Return minimum, disk, egress, discount and tax, those that are known [1e-9 USD]."""
        charges, machine = self.rental.charges, self.machine_nano
        extras: dict[str, Nano] = {}
        if self.rental.is_short:
            least_s = charges.minimum_billed_s
            least = priced((round(least_s * NANO),) * 3, self._price_nano)
            extras[f"minimum billing of {least_s:g} s"] = each(lambda i: max(0, least[i] - machine[i]))
        charged = added([machine, *extras.values()])
        extras |= self.rental.fixed
        if charges.discount:
            extras["discount"] = each(lambda i: -int(charged[i] * charges.discount))
        if charges.tax:
            subtotal = added([machine, *extras.values()])
            extras["tax"] = each(lambda i: int(subtotal[i] * charges.tax))
        return extras


def _lines_of(extras: Mapping[str, Nano]) -> list[dict[str, Any]]:
    """Return amounts beside the machine's hours as lines of a bill, those that are not nothing."""
    return [{"item": item, "usd": nano_text(nano[1])} for item, nano in extras.items() if nano[0] or nano[2]]


def bill_of_run(*, train_time_s: Interval, usd_per_hour: Decimal, charges: Fees = NO_FEES) -> Bill:
    """Return the bill of a run that is nothing but its training steps.

    Args:
        train_time_s: Time of all steps [s].
        usd_per_hour: Price of the offer [USD/h].
        charges: What is charged beside.
    """
    training = TimelinePhase(TRAINING, train_time_s, "")
    return Bill(CostBasis(Timeline((training,), train_time_s), charges), usd_per_hour=usd_per_hour)

"""The bill of a run: lines that add up exactly. Money is Decimal, in nano-dollars at the finest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

from ..units import SECONDS_PER_HOUR, Interval
from .phases import TRAINING, Phase, Schedule

__all__ = [
    "NOT_BILLED", "NO_CHARGES", "Bill", "BillLine", "Charges", "UsdInterval", "bill_of_run", "rental_usd",
]  # fmt: skip

# What a real bill may also have and this one does not, by name.
NOT_BILLED: tuple[str, ...] = ("input pipeline stalls",)

HOURS_PER_MONTH = 730.0  # what the clouds divide a month's price of storage by
_NANO_USD = Decimal("1e-9")
_WIDE = Context(prec=60)
_DECIMAL_SECONDS_PER_HOUR = Decimal(3600)
_NANO = 10**9
_NANOSECONDS_PER_HOUR = 3600 * _NANO


@dataclass(frozen=True, slots=True)
class UsdInterval:
    """What is paid when the run is as short as its 80 % interval allows, at its centre, and as long [USD].

    A single line may fall where the run grows (a minimum charge); the total of a bill never does.
    """

    low: Decimal
    mid: Decimal
    high: Decimal

    def to_json(self) -> dict[str, str]:
        """Return the three amounts as text, under the keys of the JSON contract."""
        return {"low": format(self.low, "f"), "mid": format(self.mid, "f"), "high": format(self.high, "f")}


@dataclass(frozen=True, slots=True)
class BillLine:
    """One item of a bill.

    Args:
        item: What it is called.
        usd: What it costs; a discount is below zero.
        because: What the amount rests on.
        time_s: The time that is paid for; None where no time is [s].
    """

    item: str
    usd: UsdInterval
    because: str = ""
    time_s: Interval | None = None

    def to_json(self, *, detailed: bool = False) -> dict[str, Any]:
        """Return item and central amount; in detail also the range, the time and the reason."""
        bounds = self.usd.to_json()
        line: dict[str, Any] = {"item": self.item, "usd": bounds["mid"]}
        if detailed:
            line |= {
                "usd_low": bounds["low"], "usd_high": bounds["high"], "because": self.because,
                "time_s": None if self.time_s is None else self.time_s.to_json(),
            }  # fmt: skip
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
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


NO_CHARGES = Charges()
_Nano = tuple[int, int, int]


class Bill:
    """Lines and their exact sum. The sum is worked out at once, the lines when somebody looks."""

    def __init__(self, schedule: Schedule, *, usd_per_hour: Decimal, charges: Charges = NO_CHARGES) -> None:
        self._schedule = schedule
        self._price_nano = int(usd_per_hour * _NANO)
        self._charges = charges
        self._machine = self._rental(schedule.total_s)
        self._extras = self._beside_the_machine()
        self._total: _Nano = _added([self._machine, *self._extras.values()])

    @property
    def nano(self) -> tuple[int, int, int]:
        """Lower end, central estimate and upper end [1e-9 USD]."""
        return self._total

    @property
    def machine_nano(self) -> tuple[int, int, int]:
        """What the machine's hours cost, without what is charged beside them [1e-9 USD]."""
        return self._machine

    @property
    def mid_nano(self) -> int:
        """Central estimate [1e-9 USD]."""
        return self._total[1]

    @property
    def high_nano(self) -> int:
        """Upper end [1e-9 USD]."""
        return self._total[2]

    @cached_property
    def total(self) -> UsdInterval:
        """What the run costs."""
        return _usd(self._total)

    @cached_property
    def lines(self) -> tuple[BillLine, ...]:
        """Every item that takes time or money; they add up to the total to the nano-dollar."""
        phases = {phase: self._rental(phase.time_s) for phase in self._schedule.phases}
        rest = _added([self._machine, *(_negated(nano) for nano in phases.values())])
        lines = []
        for phase, nano in phases.items():
            whole = _added([nano, rest]) if phase.item == TRAINING else nano
            lines.append(BillLine(phase.item, _usd(whole), phase.because, phase.time_s))
        reasons = self._charges.reasons
        lines += [BillLine(item, _usd(nano), reasons.get(item, "")) for item, nano in self._extras.items()]
        return tuple(line for line in lines if line.time_s is not None or line.usd.high or line.usd.low)

    def _rental(self, time_s: Interval) -> _Nano:
        """Return the price of a time on the machine at its three bounds [1e-9 USD]."""
        price = self._price_nano
        low, mid, high = (
            (round(s * _NANO) * price + _NANOSECONDS_PER_HOUR // 2) // _NANOSECONDS_PER_HOUR
            for s in (time_s.low, time_s.mid, time_s.high)
        )
        return (low, mid, high)

    def _beside_the_machine(self) -> dict[str, _Nano]:
        """Return minimum, disk, egress, discount and tax, those that are known [1e-9 USD]."""
        charges, total_s, rental = self._charges, self._schedule.total_s, self._machine
        extras: dict[str, _Nano] = {}
        if total_s.low < charges.minimum_billed_s:
            least_s = charges.minimum_billed_s
            least = self._rental(Interval(low=least_s, mid=least_s, high=least_s))
            extras[f"minimum billing of {least_s:g} s"] = _each(lambda i: max(0, least[i] - rental[i]))
        if charges.disk_usd_per_hour is not None:
            hours = [s / SECONDS_PER_HOUR for s in (total_s.low, total_s.mid, total_s.high)]
            rate = charges.disk_usd_per_hour
            extras["disk"] = _each(lambda i: round(hours[i] * rate[i] * _NANO))
        if charges.egress_usd is not None:
            egress = charges.egress_usd
            extras["egress"] = _each(lambda i: round(egress[i] * _NANO))
        if charges.discount:
            machine = _added([rental, *(nano for item, nano in extras.items() if item.startswith("minimum"))])
            extras["discount"] = _each(lambda i: -int(machine[i] * charges.discount))
        if charges.tax:
            subtotal = _added([rental, *extras.values()])
            extras["tax"] = _each(lambda i: int(subtotal[i] * charges.tax))
        return extras


def rental_usd(*, duration_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return what renting costs at a constant hourly price, billed to the second's fraction [USD].

    This is the one place where a price meets an estimate.

    Args:
        duration_s: How long the machine is held [s].
        usd_per_hour: Price of everything that is rented [USD/h].

    Example:
        >>> rental_usd(duration_s=1800.0, usd_per_hour=Decimal("0.526"))
        Decimal('0.263000000')
    """
    usd = _WIDE.multiply(Decimal(duration_s), usd_per_hour) / _DECIMAL_SECONDS_PER_HOUR
    return usd.quantize(_NANO_USD, context=_WIDE)


def bill_of_run(*, train_time_s: Interval, usd_per_hour: Decimal, charges: Charges = NO_CHARGES) -> Bill:
    """Return the bill of a run that is nothing but its training steps.

    Args:
        train_time_s: Time of all steps [s].
        usd_per_hour: Price of the offer [USD/h].
        charges: What is charged beside.
    """
    training = Phase(TRAINING, train_time_s, "")
    return Bill(Schedule((training,), train_time_s), usd_per_hour=usd_per_hour, charges=charges)


def _each(amount: Callable[[int], int]) -> _Nano:
    """Return an amount at the three bounds."""
    return (amount(0), amount(1), amount(2))


def _added(parts: Sequence[_Nano]) -> _Nano:
    """Return the exact sum, bound by bound."""
    return _each(lambda i: sum(part[i] for part in parts))


def _negated(nano: _Nano) -> _Nano:
    """Return the amounts with their signs turned."""
    return _each(lambda i: -nano[i])


def _usd(nano: _Nano) -> UsdInterval:
    """Return whole nano-dollars as dollars, exactly."""
    low, mid, high = (Decimal(amount).scaleb(-9, _WIDE) for amount in nano)
    return UsdInterval(low, mid, high)

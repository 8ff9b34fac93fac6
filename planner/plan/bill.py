"""The bill of a run: lines that add up exactly. Money is Decimal, in nano-dollars at the finest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal

from ..units import Interval

__all__ = ["MINIMUM_BILLED_S", "NOT_BILLED", "Bill", "BillLine", "UsdInterval", "bill_of_run", "rental_usd"]

# Shortest time that a provider charges for once a machine has started [s]. Absent: none is known.
#   aws: "billed on one second increments, with a minimum of 60 seconds" (Linux; on demand and spot),
#        https://aws.amazon.com/about-aws/whats-new/2017/10/announcing-amazon-ec2-per-second-billing/
#   gcp: "All vCPUs, GPUs, and GB of memory are charged a minimum of 1 minute", the billing model of
#        https://cloud.google.com/compute/all-pricing
MINIMUM_BILLED_S: dict[str, float] = {"aws": 60.0, "gcp": 60.0}

# What a real bill also has and this one does not, by name.
NOT_BILLED: tuple[str, ...] = (
    "boot and driver start",
    "data download",
    "compilation",
    "validation",
    "checkpoints",
    "input pipeline stalls",
    "disk",
    "egress",
    "tax",
)

_NANO_USD = Decimal("1e-9")
_WIDE = Context(prec=60)
_DECIMAL_SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True)
class UsdInterval:
    """What is paid when the run is as short as its 80 % interval allows, at its centre, and as long [USD].

    A single line may fall where the run grows (a minimum charge); the total of a bill never does.
    """

    low: Decimal
    mid: Decimal
    high: Decimal

    def plus(self, other: UsdInterval) -> UsdInterval:
        """Return the sum, bound by bound: both parts are late or early together."""
        return UsdInterval(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def minus(self, other: UsdInterval) -> UsdInterval:
        """Return the difference, bound by bound."""
        return UsdInterval(self.low - other.low, self.mid - other.mid, self.high - other.high)

    def to_json(self) -> dict[str, str]:
        """Return the three amounts as text, under the keys of the JSON contract."""
        return {"low": format(self.low, "f"), "mid": format(self.mid, "f"), "high": format(self.high, "f")}


@dataclass(frozen=True, slots=True)
class BillLine:
    """One item of a bill."""

    item: str
    usd: UsdInterval

    def to_json(self) -> dict[str, str]:
        """Return item and amount; `usd` is the central estimate."""
        bounds = self.usd.to_json()
        return {
            "item": self.item, "usd": bounds["mid"], "usd_low": bounds["low"], "usd_high": bounds["high"],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bill:
    """Lines and their exact sum."""

    lines: tuple[BillLine, ...]
    total: UsdInterval


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


def bill_of_run(*, train_time_s: Interval, usd_per_hour: Decimal, minimum_billed_s: float = 0.0) -> Bill:
    """Return the bill of a run: the time on the machine, and what the provider's minimum adds to it.

    Args:
        train_time_s: Time of all steps [s].
        usd_per_hour: Price of the offer [USD/h].
        minimum_billed_s: Shortest time that is charged for [s].
    """
    times_s = (train_time_s.low, train_time_s.mid, train_time_s.high)
    lines = [BillLine("compute", _usd_at(times_s, usd_per_hour))]
    if train_time_s.low < minimum_billed_s:
        billed = _usd_at(tuple(max(time_s, minimum_billed_s) for time_s in times_s), usd_per_hour)
        lines.append(BillLine(f"minimum billing of {minimum_billed_s:g} s", billed.minus(lines[0].usd)))
    return Bill(tuple(lines), _total(lines))


def _usd_at(durations_s: Iterable[float], usd_per_hour: Decimal) -> UsdInterval:
    """Return the price of the three times of a run: soonest, central, latest."""
    low, mid, high = (rental_usd(duration_s=s, usd_per_hour=usd_per_hour) for s in durations_s)
    return UsdInterval(low, mid, high)


def _total(lines: Iterable[BillLine]) -> UsdInterval:
    """Return the exact sum of the lines."""
    total = UsdInterval(Decimal(0), Decimal(0), Decimal(0))
    for line in lines:
        total = total.plus(line.usd)
    return total

"""Money in whole nano-dollars, times in whole nanoseconds: exact sums, divisions rounded to the nearest."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, NamedTuple

from ..units import SECONDS_PER_HOUR, Interval

NANO = 10**9
USD_OF_A_NANO = 1e-9  # for comparisons, which have no need of exactness
NANOSECONDS_PER_HOUR = 3600 * NANO
Nano = tuple[int, int, int]  # lower end, central estimate and upper end
_WIDE = Context(prec=60)


def nanoseconds_of(time_s: Interval) -> Nano:
    """Return a time at its three bounds [1e-9 s]."""
    return (round(time_s.low * NANO), round(time_s.mid * NANO), round(time_s.high * NANO))


def compute_price_nano(usd_per_hour: Decimal) -> int:
    """Return an hourly price in whole nano-dollars; smaller fractions are dropped [1e-9 USD/h]."""
    return int(usd_per_hour * NANO)


def price_time(nanoseconds: int, price_nano: int) -> int:
    """Return the price of some machine time [1e-9 s] at an hourly price, rounded to the nearest [1e-9 USD]."""
    return (nanoseconds * price_nano + NANOSECONDS_PER_HOUR // 2) // NANOSECONDS_PER_HOUR


def compute_share(nano: int, share: Decimal) -> int:
    """Return a share of a non-negative amount, rounded down [1e-9 USD].

    Example:
        >>> compute_share(1999, Decimal("0.1"))
        199
    """
    numerator, denominator = share.as_integer_ratio()
    return nano * numerator // denominator


def compute_rental_usd(*, duration_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return the price of renting at a constant hourly price, billed by fractions of a second [USD].

    Example:
        >>> compute_rental_usd(duration_s=1800.0, usd_per_hour=Decimal("0.526"))
        Decimal('0.263000000')
    """
    return usd_of(compute_rental_nano(duration_s=duration_s, price_nano=compute_price_nano(usd_per_hour)))


def compute_rental_nano(*, duration_s: float, price_nano: int) -> int:
    """Return the rental price for an hourly price, rounded to the nearest [1e-9 USD]."""
    seconds, parts = duration_s.as_integer_ratio()  # exactly the float
    hour = int(SECONDS_PER_HOUR) * parts
    return (2 * seconds * price_nano + hour) // (2 * hour)


def nano_text(nano: int) -> str:
    """Return whole nano-dollars as dollars, in text.

    Example:
        >>> nano_text(1_500_000_000), nano_text(-1)
        ('1.500000000', '-0.000000001')
    """
    digits = f"{abs(nano):010d}"
    return f"{'-' if nano < 0 else ''}{digits[:-9]}.{digits[-9:]}"


def usd_of(nano: int) -> Decimal:
    """Return whole nano-dollars as dollars [USD]."""
    return Decimal(nano).scaleb(-9, _WIDE)


class UsdInterval(NamedTuple):
    """Cost at the low end, centre and high end of an 80 % interval over the run's time and the price's age [USD].

    A single line may fall as the run gets longer (a minimum charge); the total of a bill never does.
    """

    low: Decimal
    mid: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class BillLine:
    """One item of a bill: label, amount at the three bounds, negative for a discount, basis and billed time."""

    item: str
    nano: Nano
    because: str = ""
    time_s: Interval | None = None

    @property
    def usd(self) -> UsdInterval:
        """Amount at the three bounds."""
        return UsdInterval(*map(usd_of, self.nano))

    def to_json(self) -> dict[str, Any]:
        """Return item, amounts, time and reason."""
        low, mid, high = map(nano_text, self.nano)
        amounts = {"usd": mid, "usd_low": low, "usd_high": high}
        time_s = None if self.time_s is None else self.time_s.to_json()
        return {"item": self.item, **amounts, "because": self.because, "time_s": time_s}

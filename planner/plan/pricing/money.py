"""Money in whole nano-dollars, times in whole nanoseconds: sums that are exact, divisions to the nearest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal

from ...units import SECONDS_PER_HOUR, Interval
from .bill_line import UsdInterval

__all__ = [
    "HALF_AN_HOUR", "NANO", "NANOSECONDS_PER_HOUR", "USD_OF_A_NANO", "Nano", "added", "each", "nano_text",
    "nanoseconds_of", "negated", "priced", "rental_nano", "rental_usd", "usd_interval_of", "usd_of",
]  # fmt: skip

NANO = 10**9
USD_OF_A_NANO = 1e-9  # for comparisons, which have no need of exactness
NANOSECONDS_PER_HOUR = 3600 * NANO
HALF_AN_HOUR = NANOSECONDS_PER_HOUR // 2  # so that a division rounds to the nearest
Nano = tuple[int, int, int]  # at the lower end, in the middle and at the upper end
_WIDE = Context(prec=60)


def nanoseconds_of(time_s: Interval) -> Nano:
    """Return a time at its three bounds [1e-9 s]."""
    return (round(time_s.low * NANO), round(time_s.mid * NANO), round(time_s.high * NANO))


def priced(nanoseconds: Nano, price_nano: int) -> Nano:
    """Return the price of a time on the machine at its three bounds, to the nearest [1e-9 USD].

    Args:
        nanoseconds: Of the three bounds [1e-9 s].
        price_nano: Of an hour [1e-9 USD/h].
    """
    low, mid, high = nanoseconds
    hour, half = NANOSECONDS_PER_HOUR, HALF_AN_HOUR
    return (
        (low * price_nano + half) // hour,
        (mid * price_nano + half) // hour,
        (high * price_nano + half) // hour,
    )


def rental_usd(*, duration_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return what renting costs at a constant hourly price, billed to the second's fraction [USD].

    Args:
        duration_s: How long the machine is held [s].
        usd_per_hour: Price of everything that is rented, which counts to the nano-dollar [USD/h].

    Example:
        >>> rental_usd(duration_s=1800.0, usd_per_hour=Decimal("0.526"))
        Decimal('0.263000000')
    """
    return usd_of(rental_nano(duration_s=duration_s, usd_per_hour=usd_per_hour))


def rental_nano(*, duration_s: float, usd_per_hour: Decimal) -> int:
    """Return the same, to the nearest [1e-9 USD]."""
    seconds, parts = duration_s.as_integer_ratio()  # exactly what the float is
    hour = int(SECONDS_PER_HOUR) * parts
    return (2 * seconds * int(usd_per_hour * NANO) + hour) // (2 * hour)


def each(amount: Callable[[int], int]) -> Nano:
    """Return an amount at the three bounds."""
    return (amount(0), amount(1), amount(2))


def added(parts: Sequence[Nano]) -> Nano:
    """Return the exact sum, bound by bound."""
    low = mid = high = 0
    for part in parts:
        low, mid, high = low + part[0], mid + part[1], high + part[2]
    return (low, mid, high)


def negated(nano: Nano) -> Nano:
    """Return the amounts with their signs turned."""
    return each(lambda i: -nano[i])


def nano_text(nano: int) -> str:
    """Return whole nano-dollars as dollars, in text.

    Example:
        >>> nano_text(1_500_000_000), nano_text(-1)
        ('1.500000000', '-0.000000001')
    """
    if nano < 0:
        return f"-{nano_text(-nano)}"
    return f"{nano // NANO}.{nano % NANO:09d}"


def usd_interval_of(nano: Nano) -> UsdInterval:
    """Return whole nano-dollars as dollars, exactly."""
    return UsdInterval(*map(usd_of, nano))


def usd_of(nano: int) -> Decimal:
    """Return whole nano-dollars as dollars [USD]."""
    return Decimal(nano).scaleb(-9, _WIDE)

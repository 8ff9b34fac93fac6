"""Unit prefixes and conversions, the prediction interval of results, and number formats for people."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MICRO = 1e-6
KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
GB = 10**9
MIB = 2**20
GIB = 2**30
MS_PER_S = 1e3
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """80 % prediction interval around a central estimate; the unit is in the name of the field that holds it.

    Example:
        >>> Interval(low=1.0, mid=2.0, high=4.0).scaled(10.0)
        Interval(low=10.0, mid=20.0, high=40.0)
    """

    low: float
    mid: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.mid <= self.high:
            raise ValueError(f"interval out of order: {self.low}, {self.mid}, {self.high}")

    def scaled(self, factor: float) -> Interval:
        """Return the interval times a non-negative factor."""
        return Interval(low=self.low * factor, mid=self.mid * factor, high=self.high * factor)

    def __add__(self, other: Interval) -> Interval:
        """Return the sum of two fully correlated quantities."""
        return Interval(low=self.low + other.low, mid=self.mid + other.mid, high=self.high + other.high)

    def plus(self, constant: float) -> Interval:
        """Return the interval shifted by a constant without uncertainty."""
        return Interval(low=self.low + constant, mid=self.mid + constant, high=self.high + constant)

    def to_json(self) -> dict[str, float]:
        """Return the three numbers under the keys of the JSON contract."""
        return {"low": self.low, "mid": self.mid, "high": self.high}


ZERO = Interval(low=0.0, mid=0.0, high=0.0)
SECONDS_PER_MINUTE = 60.0
LARGEST_SHARE_DENOMINATOR = 24
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR


def format_short(value: float) -> str:
    """Format a number with two to three digits.

    Example:
        >>> [format_short(x) for x in (0.01234, 1.234, 12.34, 123.4, 12345.6)]
        ['0.012', '1.2', '12', '123', '12,346']
    """
    if value == 0:
        return "0"
    if value < 1:
        return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def format_usd(value: float) -> str:
    """Format dollars, with cents from $0.10 to $1,000.

    Example:
        >>> [format_usd(x) for x in (0.0, 0.00123, 0.526, 12.345, 1234.5)]
        ['0', '0.0012', '0.53', '12.35', '1,234']
    """
    if value < 0.1 or value >= 1000:
        return format_short(value)
    return f"{value:.2f}"


def format_offer_name(provider: str, instance_type: str, *, hosts: int = 1) -> str:
    """Format an offer's name without repeating its provider, with the number of machines.

    Example:
        >>> format_offer_name("aws", "p3.2xlarge"), format_offer_name("colab", "colab-pro-t4")
        ('aws p3.2xlarge', 'colab pro-t4')
    """
    machines = f"{hosts}× " if hosts > 1 else ""
    return f"{provider} {machines}{instance_type.removeprefix(f'{provider}-')}"


def format_range(low: float, high: float) -> str:
    """Format the bounds of an interval.

    Example:
        >>> format_range(0.9, 14.2)
        '0.9–14'
    """
    return f"{format_short(low)}–{format_short(high)}"


def format_duration(seconds: float) -> str:
    """Format a time in a suitable unit.

    Example:
        >>> [format_duration(x) for x in (0.5, 90, 600, 7200, 90_000, 900_000)]
        ['0.5 s', '90 s', '10 min', '2.0 h', '25 h', '10 d']
    """
    if seconds < 2 * SECONDS_PER_MINUTE:
        return f"{format_short(seconds)} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{format_short(seconds / SECONDS_PER_MINUTE)} min"
    if seconds < 3 * SECONDS_PER_DAY:
        return f"{format_short(seconds / SECONDS_PER_HOUR)} h"
    return f"{format_short(seconds / SECONDS_PER_DAY)} d"


def format_duration_range(time_s: Interval) -> str:
    """Format a time with its range, whose unit is not repeated.

    Example:
        >>> format_duration_range(Interval(low=14_000.0, mid=18_360.0, high=24_500.0))
        '5.1 h (3.9–6.8)'
        >>> format_duration_range(Interval(low=50.0, mid=60.0, high=600.0))
        '60 s (50 s–10 min)'
    """
    low, mid, high = (format_duration(value) for value in (time_s.low, time_s.mid, time_s.high))
    unit = f" {mid.rpartition(' ')[2]}"
    start = low.removesuffix(unit) if high.endswith(unit) else low
    return f"{mid} ({start}–{high.removesuffix(unit) if low.endswith(unit) else high})"


def format_count(value: float, unit: str = "") -> str:
    """Format a large count with an SI prefix.

    Example:
        >>> [format_count(512), format_count(25_636_712), format_count(7.8e11, "FLOP")]
        ['512', '25.6 M', '780 GFLOP']
    """
    for size, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()


def format_device(accelerator: str, devices: float) -> str:
    """Format an accelerator with its count.

    Example:
        >>> format_device("T4", 1.0), format_device("A100-80GB", 8.0), format_device("A10", 0.167)
        ('T4', '8× A100-80GB', '1/6× A10')
    """
    if devices == 1:
        return accelerator
    return f"{Fraction(devices).limit_denominator(LARGEST_SHARE_DENOMINATOR)}× {accelerator}"

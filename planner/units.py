"""Unit prefixes, unit conversions, and the prediction interval of results."""

from __future__ import annotations

from dataclasses import dataclass

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

    def plus(self, constant: float) -> Interval:
        """Return the interval shifted by a constant without uncertainty."""
        return Interval(low=self.low + constant, mid=self.mid + constant, high=self.high + constant)

    def to_json(self) -> dict[str, float]:
        """Return the three numbers under the keys of the JSON contract."""
        return {"low": self.low, "mid": self.mid, "high": self.high}

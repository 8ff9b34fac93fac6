"""One item of a bill, and amounts with their range. Money is Decimal, in nano-dollars at the finest."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...units import Interval

__all__ = ["BillLine", "UsdInterval"]


@dataclass(frozen=True, slots=True)
class UsdInterval:
    """Cost at the low end, centre and high end of the run time's 80 % interval [USD].

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

    def to_json(self) -> dict[str, Any]:
        """Return item, amounts, time and reason."""
        usd, time_s = self.usd.to_json(), None if self.time_s is None else self.time_s.to_json()
        return {
            "item": self.item,
            "usd": usd["mid"],
            "usd_low": usd["low"],
            "usd_high": usd["high"],
            "because": self.because,
            "time_s": time_s,
        }

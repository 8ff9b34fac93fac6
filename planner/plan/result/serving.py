"""Latency, throughput and cost of a machine that serves predictions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...units import SECONDS_PER_HOUR, Interval

__all__ = ["ServingEstimate", "usd_per_million"]

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """What a machine does as a server of predictions, always busy.

    Args:
        latency_s: One prediction at a time, on one device; None when its time is unknown [s].
        per_s: Predictions at the workload's batch size, all devices together [1/s].
        usd_per_million: At that rate; None without a price [USD].
    """

    latency_s: Interval | None
    per_s: Interval
    usd_per_million: Decimal | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `offers[].serving`."""
        usd = self.usd_per_million
        return {
            "latency_s": None if self.latency_s is None else self.latency_s.to_json(),
            "predictions_per_s": self.per_s.to_json(),
            "usd_per_million_predictions": None if usd is None else format(usd, "f"),
        }


def usd_per_million(*, per_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return what a million samples cost on a machine that is always busy [USD].

    Args:
        per_s: Samples, of training or to predict [1/s].
        usd_per_hour: Price of the machine [USD/h].

    Example:
        >>> usd_per_million(per_s=1000.0, usd_per_hour=Decimal("0.36"))
        Decimal('0.100000000')
    """
    usd = Decimal(MILLION / per_s / SECONDS_PER_HOUR) * usd_per_hour
    return usd.quantize(Decimal("1e-9"))

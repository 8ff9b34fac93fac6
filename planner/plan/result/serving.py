"""Latency, throughput and cost of a machine that serves predictions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...plain import to_plain
from ...units import SECONDS_PER_HOUR, Interval

__all__ = ["ServingEstimate", "usd_per_million"]

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """Latency, throughput and cost of a fully used machine that serves predictions.

    Args:
        latency_s: Time of one prediction at batch size 1 on one device; None if unknown [s].
        per_s: Throughput of all devices at the workload's batch size [1/s].
        usd_per_million: Cost of a million predictions at that rate; None without a price [USD].
    """

    latency_s: Interval | None
    per_s: Interval
    usd_per_million: Decimal | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `offers[].serving`."""
        return {
            "latency_s": to_plain(self.latency_s),
            "predictions_per_s": to_plain(self.per_s),
            "usd_per_million_predictions": to_plain(self.usd_per_million),
        }


def usd_per_million(*, per_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a million samples on a fully used machine: 1e6 / rate / 3600 x price [USD].

    Args:
        per_s: Throughput in training or inference [1/s].
        usd_per_hour: Price of the machine [USD/h].

    Example:
        >>> usd_per_million(per_s=1000.0, usd_per_hour=Decimal("0.36"))
        Decimal('0.100000000')
    """
    usd = Decimal(MILLION / per_s / SECONDS_PER_HOUR) * usd_per_hour
    return usd.quantize(Decimal("1e-9"))

"""Predictions instead of training: latency of one, throughput of a batch, dollars per million."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..predict.steptime import StepTime
from ..units import SECONDS_PER_HOUR, Interval

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .estimate import StepPredictor
    from .offer_estimate import OfferEstimate
    from .select import Selected

__all__ = ["Serving", "usd_per_million", "with_serving"]

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
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


def with_serving(
    offers: Sequence[OfferEstimate],
    one: Workload | None,
    chosen: Sequence[Selected],
    predictor: StepPredictor,
) -> list[OfferEstimate]:
    """Return the offers, each with what it does as a server.

    Args:
        offers: Estimated with the forward pass at its batch size.
        one: The same model at batch size 1; None: latency stays unknown.
        chosen: The offers with their devices.
        predictor: Knows step times.
    """
    devices = {id(selected.offer): selected.accelerator for selected in chosen}
    known: dict[tuple[str, float], Interval | None] = {}
    served = []
    for offer in offers:
        accelerator, share = devices.get(id(offer.offer)), min(1.0, offer.offer.devices)
        latency_s = None
        if one is not None and accelerator is not None:
            key = (accelerator.name, share)
            if key not in known:
                step = predictor.step_time(one, accelerator, devices=share)
                known[key] = step.time_s if isinstance(step, StepTime) else None
            latency_s = known[key]
        served.append(replace(offer, serving=_serving(offer, latency_s)))
    return served


def _serving(offer: OfferEstimate, latency_s: Interval | None) -> Serving | None:
    per_s = offer.samples_per_s
    if per_s is None:
        return None
    return Serving(latency_s=latency_s, per_s=per_s, usd_per_million=offer.usd_per_million_samples)

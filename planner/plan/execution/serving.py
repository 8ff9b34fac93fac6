"""Latency, throughput and cost of serving predictions on each offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...predict.step_time import StepTime
from ..result.offer_estimate import ServingEstimate

if TYPE_CHECKING:
    from ...predict.step_time import StepPredictor
    from ...units import Interval
    from ...workload.model import Workload
    from ..result.offer_estimate import OfferEstimate
    from ..select import OfferContext


def add_serving(
    offers: Sequence[OfferEstimate],
    one: Workload | None,
    chosen: Sequence[OfferContext],
    predictor: StepPredictor,
) -> list[OfferEstimate]:
    """Add a serving estimate to each offer.

    Args:
        offers: Estimates of the forward pass at its batch size.
        one: The model at batch size 1; without it, and with tensor parallelism, the latency is unknown.
        chosen: Offers with their devices, in the same order.
        predictor: Predictor of step times.
    """
    devices = {id(selected.offer): selected.accelerator for selected in chosen}
    known: dict[tuple[str, float], Interval | None] = {}
    served = []
    for offer in offers:
        accelerator, share = devices.get(id(offer.offer)), min(1.0, offer.offer.devices)
        latency_s = None
        shared = offer.device_estimate.sharding.divides_products
        if one is not None and accelerator is not None and not shared:
            key = (accelerator.name, share)
            if key not in known:
                step = predictor.step_time(one, accelerator, devices=share)
                known[key] = step.time_s if isinstance(step, StepTime) else None
            latency_s = known[key]
        served.append(replace(offer, serving=_serving(offer, latency_s)))
    return served


def _serving(offer: OfferEstimate, latency_s: Interval | None) -> ServingEstimate | None:
    per_s = offer.samples_per_s
    if per_s is None:
        return None
    return ServingEstimate(latency_s=latency_s, per_s=per_s, usd_per_million=offer.usd_per_million_samples)

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


def add_serving(
    offers: Sequence[OfferEstimate], one: Workload | None, predictor: StepPredictor
) -> list[OfferEstimate]:
    """Add a serving estimate to each offer.

    Args:
        offers: Estimates of the forward pass at its batch size.
        one: The model at batch size 1; without it, and with tensor parallelism, the latency is unknown.
        predictor: Predictor of step times.
    """
    known: dict[tuple[str, float], Interval | None] = {}
    served = []
    for offer in offers:
        accelerator, share = offer.selected.accelerator, min(1.0, offer.offer.devices)
        latency_s, serving = None, None
        shared = offer.device_estimate.sharding.divides_products
        if one is not None and accelerator is not None and not shared:
            key = (accelerator.name, share)
            if key not in known:
                step = predictor.step_time(one, accelerator, devices=share)
                known[key] = step.time_s if isinstance(step, StepTime) else None
            latency_s = known[key]
        if offer.samples_per_s is not None:
            serving = ServingEstimate(
                latency_s=latency_s,
                per_s=offer.samples_per_s,
                usd_per_million=offer.usd_per_million_samples,
            )
        served.append(replace(offer, serving=serving))
    return served

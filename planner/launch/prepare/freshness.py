"""Reject plans that are too old, or whose prices have changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ...errors import NoAnswerError
from ...offers.rows import Offer
from ..core.request import LaunchCandidate

__all__ = ["ESTIMATE_LIFE", "LAUNCH_LIFE", "PRICE_TOLERANCE", "require_fresh", "require_same_price"]

ESTIMATE_LIFE = timedelta(days=7)  # catalog prices change within weeks
LAUNCH_LIFE = timedelta(hours=24)  # exact calls: images and spot prices change within days
PRICE_TOLERANCE = 0.01  # relative; rounding in tags and tables


def require_fresh(*, what: str, made_at: datetime, now: datetime, life: timedelta) -> None:
    """Raise NoAnswerError when a plan is older than its maximum age."""
    age = now - made_at
    if age > life:
        hours = age.total_seconds() / 3600
        raise NoAnswerError(
            f"{what} was made {hours:.0f} h ago and is valid for {life.total_seconds() / 3600:.0f} h",
            hint="create it again with current prices",
        )


def require_same_price(
    candidates: Sequence[LaunchCandidate], *, provider: str, offers: Sequence[Offer]
) -> None:
    """Raise NoAnswerError when the catalog's price of a candidate differs from the plan's.

    Args:
        candidates: The planned candidates.
        provider: Provider of all candidates.
        offers: Current offers of the catalog.
    """
    prices = {
        (offer.instance_type, offer.region, offer.purchase): offer.usd_per_hour
        for offer in offers
        if offer.provider == provider
    }
    for one in candidates:
        now = prices.get((one.instance_type, one.region, one.purchase))
        where = f"{one.instance_type} in {one.region} ({one.purchase.replace('_', ' ')})"
        if now is None:
            raise NoAnswerError(
                f"the catalog no longer has a price for {where}",
                hint="estimate again: `gpuplan estimate … -o plan.json`",
            )
        if abs(now - one.usd_per_hour) > one.usd_per_hour * type(now)(PRICE_TOLERANCE):
            raise NoAnswerError(
                f"the price of {where} changed from ${one.usd_per_hour} to ${now} an hour since the plan was made",
                hint="estimate again: `gpuplan estimate … -o plan.json`",
            )

"""When a plan may no longer be applied: it is old, or a price has moved since it was made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ...errors import NoAnswerError
from ...offers.rows import Offer
from ..core.request import LaunchCandidate

__all__ = ["ESTIMATE_LIFE", "LAUNCH_LIFE", "PRICE_TOLERANCE", "require_fresh", "require_same_price"]

ESTIMATE_LIFE = timedelta(days=7)  # prices of the catalog move by weeks
LAUNCH_LIFE = timedelta(hours=24)  # the calls are exact: images and spot prices move by days
PRICE_TOLERANCE = 0.01  # what rounding to a tag or a table may change


def require_fresh(*, what: str, made_at: datetime, now: datetime, life: timedelta) -> None:
    """Raise NoAnswerError when a plan is older than it may be."""
    age = now - made_at
    if age > life:
        hours = age.total_seconds() / 3600
        raise NoAnswerError(
            f"{what} was made {hours:.0f} h ago, and counts for {life.total_seconds() / 3600:.0f} h",
            hint="make it anew, so that its prices are today's",
        )


def require_same_price(
    candidates: Sequence[LaunchCandidate], *, provider: str, offers: Sequence[Offer]
) -> None:
    """Raise NoAnswerError when the catalog has another price for a candidate than the plan.

    Args:
        candidates: As planned.
        provider: Of all of them.
        offers: As the catalog has them now.
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
                hint="estimate anew: `gpuplan estimate … -o plan.json`",
            )
        if abs(now - one.usd_per_hour) > one.usd_per_hour * type(now)(PRICE_TOLERANCE):
            raise NoAnswerError(
                f"the price of {where} moved from ${one.usd_per_hour} to ${now} an hour since the plan was made",
                hint="estimate anew: `gpuplan estimate … -o plan.json`",
            )

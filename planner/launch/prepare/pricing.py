"""Age of plans, and current prices of candidates from their provider, with the catalog's as fallback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

from ...errors import NoAnswerError
from ...offers.price_history import require_recent_prices
from ...offers.rows import Offer
from ..core.api_call import CloudError
from ..core.cloud_adapter import Adapter
from ..core.request import LaunchCandidate

LIVE_TOLERANCE = Decimal("1.10")  # spot prices change by a few percent a day
# Prices of the same machine differ by up to about half between regions; spot and on demand by two to four times.
FALLBACK_FACTOR = Decimal("1.5")


def filter_affordable(candidates: Sequence[LaunchCandidate]) -> tuple[LaunchCandidate, ...]:
    """Return the first candidate, and the others that cost at most 1.5 times as much an hour."""
    first, *others = candidates
    ceiling = first.usd_per_hour * FALLBACK_FACTOR
    return (first, *(one for one in others if one.usd_per_hour <= ceiling))


def add_live_prices(
    candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str], *, limited: bool
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with current prices; a price that cannot be read is kept.

    Args:
        candidates: The estimated candidates.
        adapter: Adapter of their provider.
        options: Provider-specific options.
        limited: Whether the cost of the whole run is limited.

    Raises:
        NoAnswerError: The first costs over 10 % more than planned, and there is no limit.
    """
    priced = [_priced(one, adapter, options) for one in candidates]
    planned, now = candidates[0].usd_per_hour, priced[0].usd_per_hour
    if now > planned * LIVE_TOLERANCE and not limited:
        raise NoAnswerError(
            f"{candidates[0].instance_type} in {candidates[0].region} costs ${now} an hour now, and ${planned} "
            "in the plan",
            hint="limit the cost: `--max-usd N`; or estimate again",
        )
    return tuple(priced)


def require_known_prices(
    candidates: Sequence[LaunchCandidate],
    *,
    provider: str,
    offers: Sequence[Offer],
    today: date,
    accept_old: bool,
) -> None:
    """Raise NoAnswerError when a price that was not read now has changed in the catalog, or is old.

    Args:
        candidates: Candidates; those with a price read now are skipped.
        provider: Provider of all candidates.
        offers: Offers of the catalog.
        today: Date for the age of prices.
        accept_old: Whether the user accepts prices older than 90 days.
    """
    unread = [one for one in candidates if not one.price_source]
    prices = {
        (offer.instance_type, offer.region, offer.purchase): offer.usd_per_hour
        for offer in offers
        if offer.provider == provider
    }
    hint = "estimate again: `gpuplan estimate … -o plan.json`"
    for one in unread:
        now = prices.get((one.instance_type, one.region, one.purchase))
        where = f"{one.instance_type} in {one.region} ({one.purchase.replace('_', ' ')})"
        if now is None:
            raise NoAnswerError(f"the catalog no longer has a price for {where}", hint=hint)
        if abs(now - one.usd_per_hour) > one.usd_per_hour * type(now)(PRICE_TOLERANCE):
            raise NoAnswerError(
                f"the price of {where} changed from ${one.usd_per_hour} to ${now} an hour since the plan was made",
                hint=hint,
            )
    require_recent_prices(unread, today=today, accept_old=accept_old)


def _priced(candidate: LaunchCandidate, adapter: Adapter, options: Mapping[str, str]) -> LaunchCandidate:
    """Return a candidate with its current price, if it can be read."""
    problem = adapter.missing()
    try:
        live = None if problem else adapter.live_price(candidate, options)
    except CloudError as fault:
        live, problem = None, str(fault)
    if live is None:
        return candidate.model_copy(update={"price_source": "", "price_problem": problem})
    planned = candidate.planned_usd_per_hour or candidate.usd_per_hour
    return candidate.model_copy(
        update={
            "usd_per_hour": live.usd_per_hour,
            "planned_usd_per_hour": planned,
            "price_source": f"{live.source}, {live.read_at:%Y-%m-%d %H:%M} UTC",
            "price_problem": "",
        }
    )


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

"""Today's price of each candidate, read with the credentials that launch it; the catalog's where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal

from ...errors import NoAnswerError
from ...offers.rows import Offer
from ...offers.staleness import require_recent_prices
from ..core.cloud_adapter import Adapter
from ..core.errors import CloudError
from ..core.request import LaunchCandidate
from .freshness import require_same_price

__all__ = [
    "FALLBACK_FACTOR",
    "LIVE_TOLERANCE",
    "add_live_prices",
    "filter_affordable",
    "require_known_prices",
]

LIVE_TOLERANCE = Decimal("1.10")  # spot prices move by a few percent a day; more is another decision
# Prices of the same machine differ by up to about half between regions; spot and on demand by two to four times.
FALLBACK_FACTOR = Decimal("1.5")


def filter_affordable(candidates: Sequence[LaunchCandidate]) -> tuple[LaunchCandidate, ...]:
    """Return the first candidate and those of the others whose price an hour is close to it."""
    first, *others = candidates
    ceiling = first.usd_per_hour * FALLBACK_FACTOR
    return (first, *(one for one in others if one.usd_per_hour <= ceiling))


def add_live_prices(
    candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str], *, limited: bool
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with the prices that the provider says now; one that cannot be read stays.

    Args:
        candidates: As estimated.
        adapter: Of their provider.
        options: The provider's own.
        limited: Whether the user typed a ceiling for the whole run.

    Raises:
        NoAnswerError: The first costs clearly more than planned, and there is no ceiling.
    """
    priced = [_priced(one, adapter, options) for one in candidates]
    planned, now = candidates[0].usd_per_hour, priced[0].usd_per_hour
    if now > planned * LIVE_TOLERANCE and not limited:
        raise NoAnswerError(
            f"{candidates[0].instance_type} in {candidates[0].region} costs ${now} an hour now, and the plan says "
            f"${planned}",
            hint="say what the run may cost at most: `--max-usd N`; or estimate again",
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
    """Raise NoAnswerError when a price that was not read now has moved in the catalog, or is old.

    Args:
        candidates: Those whose price was read now are not looked at.
        provider: Of all of them.
        offers: As the catalog has them.
        today: For the age.
        accept_old: Whether the user takes prices older than 90 days.
    """
    unread = [one for one in candidates if not one.price_source]
    require_same_price(unread, provider=provider, offers=offers)
    require_recent_prices(unread, today=today, accept_old=accept_old)


def _priced(candidate: LaunchCandidate, adapter: Adapter, options: Mapping[str, str]) -> LaunchCandidate:
    """Return a candidate with its price of now; unchanged when that cannot be read."""
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
            "usd_per_hour": live.usd_per_hour, "planned_usd_per_hour": planned,
            "price_source": f"{live.source}, {live.read_at:%Y-%m-%d %H:%M} UTC",
            "price_problem": "",
        }
    )  # fmt: skip

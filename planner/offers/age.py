"""How old prices are, and when that matters: told past 30 days, refused for spending past 90."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NoAnswerError

if TYPE_CHECKING:
    from .rows import Offer

__all__ = [
    "OLD_AFTER_DAYS", "REFUSED_AFTER_DAYS", "Dated", "OldPrices", "age_days", "age_warning", "ages_by_provider",
    "latest_day", "old_prices", "require_recent_prices",
]  # fmt: skip

OLD_AFTER_DAYS = 30
REFUSED_AFTER_DAYS = 90
REMEDY = "gpuplan catalog refresh"


class Dated(Protocol):
    """Whatever has the date of a price: an offer, a line of a plan."""

    @property
    def price_as_of(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPrices:
    """How many of the prices that were used are old.

    Args:
        old: More than 30 days [-].
        dated: All that have a date [-].
        oldest_days: Age of the oldest [days].
    """

    old: int
    dated: int
    oldest_days: int


def latest_day(as_of: str) -> date:
    """Return the last day that a partial date can mean; ValueError for what is no date.

    Example:
        >>> latest_day("2026-02"), latest_day("2019-2023")
        (datetime.date(2026, 2, 28), datetime.date(2023, 12, 31))
    """
    if re.fullmatch(r"\d{4}-\d{4}", as_of):
        as_of = as_of[5:]
    year, *rest = (int(part) for part in as_of.split("-"))
    month = rest[0] if rest else 12
    return date(year, month, rest[1] if len(rest) > 1 else monthrange(year, month)[1])


def age_days(as_of: str, *, today: date) -> int:
    """Return how long ago a price was read, at least [days]; 0 for a month that is not over."""
    return max(0, (today - latest_day(as_of)).days)


def old_prices(offers: Iterable[Dated], *, today: date) -> OldPrices:
    """Return how many of some prices are old; those without a date (one's own machine) do not age."""
    ages = [age_days(offer.price_as_of, today=today) for offer in offers if offer.price_as_of]
    return OldPrices(
        old=sum(1 for age in ages if age > OLD_AFTER_DAYS), dated=len(ages), oldest_days=max(ages, default=0)
    )


def age_warning(offers: Iterable[Dated], *, today: date) -> str | None:
    """Return the sentence below a table of money when a price in it is older than 30 days; None when none is."""
    found = old_prices(offers, today=today)
    if not found.old:
        return None
    which = "The price is" if found.dated == 1 else f"{found.old} of {found.dated} prices are"
    return (
        f"{which} older than {OLD_AFTER_DAYS} days (up to {found.oldest_days}): `{REMEDY}` reads them anew."
    )


def require_recent_prices(offers: Iterable[Dated], *, today: date, accept_old: bool = False) -> None:
    """Raise NoAnswerError when money would be spent on a price older than 90 days, unless the user accepts it."""
    found = old_prices(offers, today=today)
    if found.oldest_days > REFUSED_AFTER_DAYS and not accept_old:
        raise NoAnswerError(
            f"the price is {found.oldest_days} days old, "
            f"and nothing is started on one older than {REFUSED_AFTER_DAYS}",
            hint=f"run `{REMEDY}` and plan anew, or add `--accept-old-prices`",
        )


def ages_by_provider(offers: Iterable[Offer], *, today: date) -> list[dict[str, Any]]:
    """Return how old the prices of each provider and purchase option are; what is gone is not among them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for offer in offers:
        if offer.usd_per_hour and offer.price_as_of and offer.status in ("active", "legacy"):
            groups.setdefault((offer.provider, offer.purchase), []).append(offer.price_as_of)
    return [
        {
            "provider": provider,
            "purchase": purchase,
            "prices": len(dates),
            "newest": max(dates),
            "oldest": min(dates),
            "over_30_days": sum(age_days(day, today=today) > OLD_AFTER_DAYS for day in dates),
            "over_90_days": sum(age_days(day, today=today) > REFUSED_AFTER_DAYS for day in dates),
        }
        for (provider, purchase), dates in sorted(groups.items())
    ]

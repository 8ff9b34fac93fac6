"""Age of prices: a warning past 30 days, a refusal to spend past 90."""

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
    "OLD_AFTER_DAYS",
    "REFUSED_AFTER_DAYS",
    "HasPriceDate",
    "OldPrices",
    "compute_age_days",
    "count_old_prices",
    "format_age_warning",
    "get_last_day",
    "require_recent_prices",
    "summarize_ages",
]  # fmt: skip

OLD_AFTER_DAYS = 30
REFUSED_AFTER_DAYS = 90
REMEDY = "gpuplan catalog refresh"


class HasPriceDate(Protocol):
    """A priced item with a date, such as an offer or a line of a launch plan."""

    @property
    def price_as_of(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPrices:
    """Number and age of outdated prices among those used.

    Args:
        old: Prices older than 30 days [-].
        dated: All prices with a date [-].
        oldest_days: Age of the oldest price [days].
    """

    old: int
    dated: int
    oldest_days: int


def get_last_day(as_of: str) -> date:
    """Return the last day covered by a partial date. ValueError if the text is not a date.

    Example:
        >>> get_last_day("2026-02"), get_last_day("2019-2023")
        (datetime.date(2026, 2, 28), datetime.date(2023, 12, 31))
    """
    if re.fullmatch(r"\d{4}-\d{4}", as_of):
        as_of = as_of[5:]
    year, *rest = (int(part) for part in as_of.split("-"))
    month = rest[0] if rest else 12
    return date(year, month, rest[1] if len(rest) > 1 else monthrange(year, month)[1])


def compute_age_days(as_of: str, *, today: date) -> int:
    """Return the minimum age of a price [days]; 0 for a month that has not ended."""
    return max(0, (today - get_last_day(as_of)).days)


def count_old_prices(offers: Iterable[HasPriceDate], *, today: date) -> OldPrices:
    """Count the prices older than 30 days; undated prices (the user's own machine) are skipped."""
    ages = [compute_age_days(offer.price_as_of, today=today) for offer in offers if offer.price_as_of]
    return OldPrices(
        old=sum(1 for age in ages if age > OLD_AFTER_DAYS), dated=len(ages), oldest_days=max(ages, default=0)
    )


def format_age_warning(offers: Iterable[HasPriceDate], *, today: date) -> str | None:
    """Return the staleness warning shown below a price table; None if every price is recent."""
    found = count_old_prices(offers, today=today)
    if not found.old:
        return None
    which = "The price is" if found.dated == 1 else f"{found.old} of {found.dated} prices are"
    return f"{which} older than {OLD_AFTER_DAYS} days (up to {found.oldest_days} days): run `{REMEDY}` to update."


def require_recent_prices(offers: Iterable[HasPriceDate], *, today: date, accept_old: bool = False) -> None:
    """Raise NoAnswerError if a price to be spent on is older than 90 days and old prices are not accepted."""
    found = count_old_prices(offers, today=today)
    if found.oldest_days > REFUSED_AFTER_DAYS and not accept_old:
        raise NoAnswerError(
            f"the price is {found.oldest_days} days old; "
            f"launching requires one read in the last {REFUSED_AFTER_DAYS} days",
            hint=f"run `{REMEDY}` and plan again, or add `--accept-old-prices`",
        )


def summarize_ages(offers: Iterable[Offer], *, today: date) -> list[dict[str, Any]]:
    """Return price ages by provider and purchase option; retired and historical offers are excluded."""
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
            "over_30_days": sum(compute_age_days(day, today=today) > OLD_AFTER_DAYS for day in dates),
            "over_90_days": sum(compute_age_days(day, today=today) > REFUSED_AFTER_DAYS for day in dates),
        }
        for (provider, purchase), dates in sorted(groups.items())
    ]

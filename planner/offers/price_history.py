"""Prices over time: changes between two price lists, and the age of prices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NoAnswerError, UsageError
from .rows import Offer

if TYPE_CHECKING:
    from .refreshed_prices import PriceStore


def diff_prices(old: Iterable[Offer], new: Iterable[Offer]) -> list[dict[str, Any]]:
    """Return the differences between two price lists: changes by size, then additions and removals.

    `percent` is None unless the price changed.
    """
    before, after = ({(o.provider, *o.key): o for o in offers if o.usd_per_hour} for offers in (old, new))
    changes: list[dict[str, Any]] = []
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        old_usd, new_usd = (one.usd_per_hour if one else None for one in (was, now))
        if old_usd != new_usd:
            changes.append(
                {
                    "kind": "added" if old_usd is None else "removed" if new_usd is None else "changed",
                    **dict(zip(("provider", "instance_type", "region", "purchase"), key, strict=True)),
                    "old_usd_per_hour": old_usd,
                    "new_usd_per_hour": new_usd,
                    "percent": float(new_usd / old_usd - 1) * 100 if old_usd and new_usd else None,
                    "old_as_of": was.price_as_of if was else None,
                    "new_as_of": now.price_as_of if now else None,
                }
            )
    order = ("changed", "added", "removed")
    return sorted(changes, key=lambda change: (order.index(change["kind"]), -abs(change["percent"] or 0.0)))


def load_previous_prices(
    store: PriceStore, providers: list[str], *, old: Path | None, packaged: bool
) -> list[Offer]:
    """Return the prices to compare with; packaged ones only for refreshed offers."""
    from .catalog import load_catalog
    from .refreshed_prices import PriceStore

    if packaged:
        keys = {(name, *offer.key) for name in providers for offer in store.offers(name)}
        keys |= {(name, *key) for name in providers for key in store.gone(name)}
        return [offer for offer in load_catalog().offers if (offer.provider, *offer.key) in keys]
    if old is None:
        return [offer for name in providers for offer in store.offers(name, part="previous")]
    if not (old / "prices").is_dir():
        raise UsageError(f"`{old}` has no prices/ in it", hint="give a data folder of `gpuplan catalog refresh`")
    return [offer for name in providers for offer in PriceStore(old).offers(name)]


STALE_AFTER_DAYS = 7  # age from which prices are refreshed
OLD_AFTER_DAYS = 30
REFUSED_AFTER_DAYS = 90
REMEDY = "gpuplan catalog refresh"


def get_first_day(as_of: str) -> date:
    """Return the first day covered by a partial date. ValueError if the text is not a date.

    Example:
        >>> get_first_day("2026-02"), get_first_day("2019-2023")
        (datetime.date(2026, 2, 1), datetime.date(2019, 1, 1))
    """
    if re.fullmatch(r"\d{4}-\d{4}", as_of):
        as_of = as_of[:4]
    year, month, day = (*(int(part) for part in as_of.split("-")), 1, 1)[:3]
    return date(year, month, day)


def compute_age_days(as_of: str, *, today: date) -> int:
    """Return the age of a price [days]: a month or a year counts from its first day."""
    return max(0, (today - get_first_day(as_of)).days)


def require_recent_prices(days: Iterable[str | None], *, today: date, accept_old: bool = False) -> None:
    """Raise NoAnswerError if a price to be spent on is older than 90 days and old prices are not accepted."""
    oldest_days = max((compute_age_days(day, today=today) for day in days if day), default=0)
    if oldest_days > REFUSED_AFTER_DAYS and not accept_old:
        raise NoAnswerError(
            f"the price is {oldest_days} days old; "
            f"launching requires one read in the last {REFUSED_AFTER_DAYS} days",
            hint=f"run `{REMEDY}` and plan again, or set `GPUPLAN_ACCEPT_OLD_PRICES=true`",
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

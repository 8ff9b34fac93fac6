"""Staleness warning below price tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..offers.age import HasPriceDate

__all__ = ["current_date", "format_age_line"]


def current_date() -> date:
    """Return the current date, replaceable in tests."""
    return date.today()


def format_age_line(offers: Iterable[HasPriceDate]) -> str:
    """Return the staleness warning of prices older than 30 days; empty if there are none.

    Args:
        offers: Offers shown, or other dated prices.
    """
    from ..offers.age import format_age_warning

    return format_age_warning(offers, today=current_date()) or ""

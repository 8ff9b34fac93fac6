"""The line below a table of money that says how old its prices are, when they are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..offers.age import Dated

__all__ = ["age_line", "today"]


def today() -> date:
    """Return the date; tests have another."""
    return date.today()


def age_line(offers: Iterable[Dated]) -> str:
    """Return that prices are older than 30 days; empty when none is.

    Args:
        offers: The rows that are shown, or whatever has the date of a price.
    """
    from ..offers.age import age_warning

    return age_warning(offers, today=today()) or ""

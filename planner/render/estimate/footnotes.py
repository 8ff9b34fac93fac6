"""Notes below a table: sources of its numbers, and omissions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from ...plan.cost_terms import USD
from ..numbers import format_short

if TYPE_CHECKING:
    from ...offers.staleness import HasPriceDate
    from ...plan.result.estimate import Estimate
    from ...plan.result.offer_estimate import OfferEstimate

__all__ = ["current_date", "format_age_line", "format_footnotes"]


def current_date() -> date:
    """Return the current date, replaceable in tests."""
    return date.today()


def format_age_line(offers: Iterable[HasPriceDate]) -> str:
    """Return the staleness warning of prices older than 30 days; empty if there are none.

    Args:
        offers: Offers shown, or other dated prices.
    """
    from ...offers.staleness import format_age_warning

    return format_age_warning(offers, today=current_date()) or ""


def format_footnotes(estimate: Estimate, shown: Sequence[OfferEstimate]) -> list[str]:
    """Return the sources of a table's numbers, and their omissions."""
    age = format_age_line(one.offer for one in shown)
    lines = (
        _format_prices_note(shown),
        age,
        _format_bill_note(estimate),
        _format_times_note(estimate, shown),
    )
    return [line for line in lines if line]


def _format_prices_note(shown: Sequence[OfferEstimate]) -> str:
    """Return kind and dates of the prices."""
    dates = sorted(one.offer.price_as_of for one in shown if one.offer.price_as_of)
    if not dates:
        return "Prices: none known."
    marks = ["s = spot"] if any(one.offer.purchase == "spot" for one in shown) else []
    if any(one.offer.estimated for one in shown):
        marks.append("~ = estimated from published savings")
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return "; ".join([f"Prices: list prices of {between}, not live", *marks]) + "."


def _format_bill_note(estimate: Estimate) -> str:
    """Return the items included in and excluded from the bill."""
    from ...plan.pricing.bill import NOT_BILLED

    terms = estimate.terms
    if terms.costs is None:
        return f"Included in the bill: training only. Not included: {', '.join(NOT_BILLED)}."
    tax = "no tax" if terms.tax is None else f"with {terms.tax.percent:g} % {terms.tax.name}"
    rate = (
        ""
        if terms.currency.code == USD.code
        else f" 1 USD = {terms.currency.per_usd:f} {terms.currency.code}."
    )
    return (
        f"Included in the bill: boot to shutdown, disk, egress, {tax} (--breakdown itemizes it). "
        f"Not included: {', '.join(NOT_BILLED)}.{rate}"
    )


def _format_times_note(estimate: Estimate, shown: Sequence[OfferEstimate]) -> str:
    """Return the bases of the times, and the unmodelled share of a step."""
    bases = sorted(
        {basis for one in shown if (basis := getattr(one.device_estimate.step_time, "basis", None))}
    )
    share = sum(unmodelled.bytes_share for unmodelled in estimate.workload.unmodelled)
    names = ", ".join(unmodelled.name for unmodelled in estimate.workload.unmodelled[:3])
    unmodelled_text = (
        f"{format_short(100 * share)} % of the bytes of a step ({names})" if names else "nothing"
    )
    return f"Times: {', '.join(bases) or 'none'}; ranges are 80 % intervals; not modelled: {unmodelled_text}."

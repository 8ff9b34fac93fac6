"""What the numbers of an estimate rest on, and what they leave out: the lines under a table of money."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plan.terms import USD
from .age import age_line
from .numbers import short_text

if TYPE_CHECKING:
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.result import Estimate

__all__ = ["trust_lines"]


def trust_lines(estimate: Estimate, shown: Sequence[OfferEstimate]) -> list[str]:
    """Return what the numbers of a table rest on, and what they leave out."""
    age = age_line(one.offer for one in shown)
    lines = (_prices_line(shown), age, _bill_line(estimate), _times_line(estimate, shown))
    return [line for line in lines if line]


def _prices_line(shown: Sequence[OfferEstimate]) -> str:
    """Return kind and dates of the prices."""
    dates = sorted(one.offer.price_as_of for one in shown if one.offer.price_as_of)
    if not dates:
        return "Prices: none known."
    marks = ["s = spot"] if any(one.offer.purchase == "spot" for one in shown) else []
    if any(one.offer.estimated for one in shown):
        marks.append("~ = estimated from published savings")
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return "; ".join([f"Prices: list prices of {between}, not live", *marks]) + "."


def _bill_line(estimate: Estimate) -> str:
    """Return what the bill holds beside the training, and what it leaves out."""
    from ..plan.bill import NOT_BILLED

    terms = estimate.terms
    if terms.costs is None:
        return f"In the bill: the training alone. Not in it: {', '.join(NOT_BILLED)}."
    tax = "without tax" if terms.tax is None else f"with {terms.tax.percent:g} % {terms.tax.name}"
    rate = (
        ""
        if terms.currency.code == USD.code
        else f" 1 USD = {terms.currency.per_usd:f} {terms.currency.code}."
    )
    return (
        f"In the bill: boot to shutdown, disk, egress, {tax} (--breakdown shows every line and what it rests on). "
        f"Not in it: {', '.join(NOT_BILLED)}.{rate}"
    )


def _times_line(estimate: Estimate, shown: Sequence[OfferEstimate]) -> str:
    """Return the bases of the times, and the share of the step that was not understood."""
    bases = sorted({basis for one in shown if (basis := getattr(one.projection.step_time, "basis", None))})
    share = sum(unmodelled.bytes_share for unmodelled in estimate.workload.unmodelled)
    names = ", ".join(unmodelled.name for unmodelled in estimate.workload.unmodelled[:3])
    unmodelled_text = f"{short_text(100 * share)} % of the bytes of a step ({names})" if names else "nothing"
    return f"Times: {', '.join(bases) or 'none'}; ranges are 80 % intervals; not modelled: {unmodelled_text}."

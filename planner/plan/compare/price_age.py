"""Sensitivity of the cheapest offer to the age of prices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...numbers import format_offer_name, format_short
from .ranking import Candidate, cheapest

if TYPE_CHECKING:
    from ..cost_terms import CostTerms
    from ..result.offer_estimate import OfferEstimate


def explain_price_age(paid: Sequence[Candidate], offers: Sequence[OfferEstimate], terms: CostTerms) -> str:
    """Return a warning if the age of a price alone could change the cheapest offer; else empty.

    The cheapest offer and a rival change places when ln(rival's cost / its cost) is within the half-width of both
    prices together (`price_range`).

    Args:
        paid: Offers that cost money.
        offers: Offers by key.
        terms: How fast prices move, and the current date.
    """
    from ...offers.price_history import OLD_AFTER_DAYS, compute_age_days

    best = cheapest(paid)
    if best is None:
        return ""
    rivals = sorted((one for one in paid if one.key != best), key=lambda one: one.cost_usd)
    winner = next(one for one in paid if one.key == best)
    for rival in rivals:
        pair = [offers[winner.key].offer, offers[rival.key].offer]
        widths = [terms.price_half_width(offer) for offer in pair]
        if math.log(rival.cost_usd / winner.cost_usd) >= math.hypot(*widths):
            continue
        old, width = max(zip(pair, widths, strict=True), key=lambda one: one[1])
        age_days = compute_age_days(old.price_as_of or "", today=terms.today)
        if age_days <= OLD_AFTER_DAYS:
            continue
        other = pair[0] if old is pair[1] else pair[1]
        name, than = (
            format_offer_name(one.provider, one.instance_type, hosts=one.hosts) for one in (old, other)
        )
        return (
            f"The order may change with a current price: that of {name} is {age_days} days old, such prices "
            f"change by a factor of {format_short(math.exp(width))} in that time, and {than} is within that "
            "range: run `gpuplan catalog refresh`."
        )
    return ""

"""What to take, how firmly, and what lies between the cheapest and the fastest: the lines under a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..plan.terms import USD
from .numbers import device_text, duration_text, offer_text, short_text, usd_text
from .output import UNKNOWN

if TYPE_CHECKING:
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.result import Estimate
    from ..plan.terms import Currency

__all__ = ["million_text", "summary_lines"]

PARETO_SHOWN = 4
MANY_TIMES = 10.0


def summary_lines(estimate: Estimate) -> list[str]:
    """Return what to take, one line each."""
    chosen = estimate.recommendation
    answers = {
        "cheapest": chosen.cheapest,
        "fastest": chosen.fastest,
        "in time": chosen.within_deadline,
        "in budget": chosen.within_budget,
        "free": chosen.free,
    }
    currency = estimate.terms.currency
    names_of: dict[int, list[str]] = {}
    for name, index in answers.items():
        if index is not None:
            names_of.setdefault(index, []).append(name)
    offers = estimate.offers
    lines = [f"{', '.join(names)}: {_named(offers[index], currency)}" for index, names in names_of.items()]
    return [*lines, *_why_lines(estimate), *_margin_lines(estimate)]


def _why_lines(estimate: Estimate) -> list[str]:
    """Return what limits a step on the cheapest, and what would help."""
    from ..plan.limiter import limit_of

    index = estimate.recommendation.cheapest
    limit = None if index is None else limit_of(estimate.offers[index].projection)
    if index is None or limit is None:
        return []
    offer = estimate.offers[index].offer
    return [f"limit on {device_text(offer.accelerator, offer.devices)}: {limit.why}"]


def _margin_lines(estimate: Estimate) -> list[str]:
    """Return what would change the cheapest, and what lies between it and the fastest."""
    chosen = estimate.recommendation
    margin, lines = chosen.sensitivity, []
    if margin is not None:
        rival = estimate.offers[margin.runner_up].offer
        name = offer_text(rival.provider, rival.instance_type)
        price, step = _percent(margin.price_share), _percent(margin.step_time_share)
        firm = "firmly cheapest" if margin.certain else "not firmly cheapest"
        lines.append(
            f"{firm}: at a price {price} higher, or with steps {step} slower, {name} ({rival.region}, "
            f"{rival.purchase.replace('_', ' ')}) would be cheaper"
        )
    between = [index for index in chosen.pareto if index not in (chosen.cheapest, chosen.fastest)]
    if between:
        worth = [_brief(estimate.offers[index], estimate.terms.currency) for index in between[:PARETO_SHOWN]]
        lines.append(f"between the two: {'; '.join(worth)}")
    return lines


def _percent(share: float) -> str:
    """Return a share for a sentence."""
    return f"{short_text(100 * share)} %" if share < MANY_TIMES else f"{share:,.0f} times"


def _brief(one: OfferEstimate, currency: Currency) -> str:
    """Return an offer with its time and cost in a few words."""
    return (
        f"{device_text(one.offer.accelerator, one.offer.devices)} {' '.join(_time_and_cost(one, currency))}"
    )


def _time_and_cost(one: OfferEstimate, currency: Currency) -> tuple[str, str]:
    """Return what a run takes and costs; of samples where its length is unknown."""
    if one.run_time_s is not None:
        cost = (
            _amount_text(usd_text(float(currency.of_usd(one.bill.total.mid))), currency)
            if one.bill
            else UNKNOWN
        )
        return duration_text(one.run_time_s.mid), cost
    million = million_text(one, currency)
    rate = UNKNOWN if one.samples_per_s is None else short_text(one.samples_per_s.mid)
    return f"{rate} samples/s", UNKNOWN if million is None else f"{_amount_text(million, currency)} a million"


def million_text(one: OfferEstimate, currency: Currency) -> str | None:
    """Return what a million samples cost, without a sign of the currency; None when unknown."""
    usd = one.usd_per_million_samples
    return None if usd is None else usd_text(float(currency.of_usd(usd)))


def _amount_text(text: str, currency: Currency) -> str:
    """Return an amount with its currency."""
    return f"${text}" if currency.code == USD.code else f"{text} {currency.code}"


def _named(one: OfferEstimate, currency: Currency) -> str:
    """Return an offer with its time and cost in one line."""
    offer = one.offer
    kind = offer.purchase.replace("_", " ")
    device = device_text(offer.accelerator, offer.devices)
    name = f"{offer_text(offer.provider, offer.instance_type)} ({device}), {offer.region}, {kind}"
    return f"{name}: {', '.join(_time_and_cost(one, currency))}"

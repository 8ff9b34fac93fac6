"""Explanation of an estimate (`--explain`): recommendations with their certainty, and sources of its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..offers.price_history import REMEDY, STALE_AFTER_DAYS, compute_age_days
from ..offers.rows import Offer
from ..plan.cost_terms import USD
from ..plan.decision import name_offer
from ..settings import get_today
from ..units import format_count, format_device, format_duration, format_offer_name, format_short
from .offer_columns import describe_memory
from .output import UNKNOWN

if TYPE_CHECKING:
    from ..plan.cost_terms import CostTerms, Currency
    from ..plan.estimate import Estimate
    from ..plan.offer_estimate import OfferEstimate

PARETO_SHOWN = 4


def format_explanation(estimate: Estimate, shown: Sequence[int]) -> list[str]:
    """Return paragraphs on recommendations, memory, sources and assumptions; the table shows some positions."""
    rows = [estimate.offers[index] for index in shown]
    sources = (_format_prices_note(rows), _format_bill_note(estimate), _format_times_note(estimate, rows))
    return [
        _format_left_out(estimate, shown),
        *_format_remedies(estimate),
        *format_summary_lines(estimate),
        *sources,
        _format_quota_note(estimate),
        *(f"{note[0].upper()}{note[1:]}." for note in estimate.workload.notes),
    ]


def _format_left_out(estimate: Estimate, shown: Sequence[int]) -> str:
    """Return how many kinds of machines are not shown, and why."""
    best = [estimate.offers[index].device_estimate for index in estimate.best_per_devices()]
    reasons = {
        "too small for this batch size": sum(one.memory.fits is False for one in best),
        "without a known time": sum(one.step_time_s is None for one in best),
        "not supported by Keras 3": sum(one.runs is False for one in best),
    }
    why = "".join(f"; {number} {reason}" for reason, number in reasons.items() if number)
    return f"Shown: {len(shown):,} of {len(estimate.offers):,} offers; of {len(best)} kinds of machines{why}."


def _format_remedies(estimate: Estimate) -> list[str]:
    """Return ways to fit the step on devices that are too small for it: the first that one would be enough for."""
    best = (estimate.offers[index] for index in estimate.best_per_devices())
    too_small = [one for one in best if one.device_estimate.memory.fits is False and one.device_estimate.remedies]
    if not too_small:
        return []
    helped = (one for one in too_small if any(way.fits for way in one.device_estimate.remedies))
    small = next(helped, too_small[0])
    ways = " · ".join(describe_remedy(way.remedy, is_enough=way.fits) for way in small.device_estimate.remedies)
    return [f"To fit on {_name_device(small.offer)} ({describe_memory(small.to_json())}): {ways}."]


def describe_remedy(remedy: str, *, is_enough: bool) -> str:
    """Return a way to fit, and whether others are needed too."""
    return remedy if is_enough else f"{remedy}, not enough by itself"


def _name_device(offer: Offer) -> str:
    return format_device(offer.accelerator, offer.devices)


def format_summary_lines(estimate: Estimate) -> list[str]:
    """Return the recommendations, one line each."""
    chosen, offers, currency = estimate.recommendation, estimate.offers, estimate.terms.currency
    paid = "" if chosen.free is None or chosen.free == chosen.fastest else " paid"
    answers = {
        f"cheapest{paid}": chosen.cheapest,
        f"fastest{paid}": chosen.fastest,
        "in time": chosen.within_deadline,
        "in budget": chosen.within_budget,
        "free": chosen.free,
    }
    lines = []
    for index in dict.fromkeys(index for index in answers.values() if index is not None):
        offer = offers[index].offer
        names = ", ".join(name for name, row in answers.items() if row == index)
        device = f"{format_offer_name(offer.provider, offer.instance_type)} ({_name_device(offer)})"
        time, cost = _format_time_and_cost(offers[index], currency)
        lines.append(f"{names}: {device}, {offer.region}, {offer.purchase.replace('_', ' ')}: {time}, {cost}")
    limit = None if chosen.cheapest is None else offers[chosen.cheapest].device_estimate.bottleneck
    lines += _format_throughput(estimate)
    if chosen.cheapest is not None and limit is not None:
        lines.append(f"limit on {_name_device(offers[chosen.cheapest].offer)}: {limit.why}")
    return [*lines, *_format_front(estimate)]


def _format_throughput(estimate: Estimate) -> list[str]:
    """Return the utilization of the recommended devices, and the tokens of a language model on them."""
    index = estimate.decision.recommended
    if index is None:
        return []
    one, currency = estimate.offers[index], estimate.terms.currency
    mfu, tokens, usd = one.device_estimate.mfu, one.device_estimate.tokens_per_s, one.usd_per_million_tokens
    found = [
        *([] if tokens is None else [f"{format_count(tokens.mid)} tokens/s"]),
        *([f"{currency.format_amount(float(usd))} a million tokens"] if usd else []),
        *([] if mfu is None else [f"{100 * mfu.mid:.0f} % of the peak FLOP/s (MFU)"]),
    ]
    return [f"on {_name_device(one.offer)}: {', '.join(found)}"] if found else []


def _format_front(estimate: Estimate) -> list[str]:
    """Return the Pareto front between the cheapest and the fastest offer, one for each time."""
    chosen, offers = estimate.recommendation, estimate.offers
    between: dict[str, str] = {}
    for index in chosen.pareto:
        if index not in (chosen.cheapest, chosen.fastest):
            time, cost = _format_time_and_cost(offers[index], estimate.terms.currency)
            between[time] = f"{_name_device(offers[index].offer)} {time} {cost}"
    return [f"between the two: {'; '.join([*between.values()][:PARETO_SHOWN])}"] if between else []


def _format_time_and_cost(one: OfferEstimate, currency: Currency) -> tuple[str, str]:
    """Format time and cost of a run, or of samples if its length is unknown."""
    if one.run_time_s is not None:
        cost = currency.format_amount(float(one.bill.total.mid)) if one.bill else UNKNOWN
        return format_duration(one.run_time_s.mid), cost
    million = one.usd_per_million_samples
    rate = UNKNOWN if one.samples_per_s is None else format_short(one.samples_per_s.mid)
    cost = UNKNOWN if million is None else f"{currency.format_amount(float(million))} per million"
    return f"{rate} samples/s", cost


class Priced(NamedTuple):
    """A candidate of a decision, by the age of its price."""

    offer: Offer
    total_usd: float  # what decides [USD]
    money_usd: float  # the part of it that goes with the price [USD]
    half_width: float  # how far today's price may be off: half an 80 % interval of ln(price) [-]


def format_age_line(offers: Iterable[OfferEstimate], terms: CostTerms) -> str:
    """Describe the ages of the prices of estimates, that of the taken offer first."""
    return describe_ages(
        Priced(one.offer, one.total_usd, float(one.bill.total.mid), terms.price_half_width(one.offer))
        for one in offers
        if one.total_usd is not None and one.bill is not None
    )


def describe_ages(candidates: Iterable[Priced]) -> str:
    """Return what the age of prices may change about a choice, or that they are new; empty for neither.

    A price is old after a week, and news where it may have moved so far that another machine is the choice.
    """
    found = list(candidates)
    if not found:
        return ""
    taken, *others = found
    dates = {one.offer.price_as_of for one in found} - {None}
    if dates == {get_today().isoformat()}:
        return "Prices: today."
    # What costs less in all and was not taken has another reason than its price: a deadline.
    dearer = [one for one in others if one.total_usd >= taken.total_usd]
    rivals = [one for one in dearer if name_offer(one.offer) != name_offer(taken.offer)]
    least = min(rivals, key=lambda one: one.total_usd, default=None)
    if least is not None and (line := _describe_move(taken, least.total_usd, name_offer(least.offer))):
        return line
    return next(filter(None, (_describe_move(one, taken.total_usd, "it") for one in rivals)), "")


def _describe_move(one: Priced, rival_usd: float, choice: str) -> str:
    """Return the move of an old price that makes its total a rival's, and the choice then; empty if it is far."""
    ratio = 1.0 + (rival_usd - one.total_usd) / one.money_usd if one.money_usd > 0 else 0.0
    age_days = compute_age_days(one.offer.price_as_of, today=get_today()) if one.offer.price_as_of else 0
    if age_days <= STALE_AFTER_DAYS or ratio <= 0.0 or abs(math.log(ratio)) > one.half_width:
        return ""
    percent, way = max(1, math.ceil(round(100.0 * abs(ratio - 1.0), 6))), "more" if ratio >= 1.0 else "less"
    name = name_offer(one.offer)
    return f"The price of {name} is {age_days} days old; at {percent} % {way}, take {choice}: `{REMEDY}`."


def _format_prices_note(shown: Sequence[OfferEstimate]) -> str:
    """Return kind and dates of the prices."""
    dates = sorted(one.offer.price_as_of for one in shown if one.offer.price_as_of)
    if not dates:
        return "Prices: none known."
    marks = "; ~ = estimated from published savings" if any(one.offer.estimated for one in shown) else ""
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"Prices: list prices of {between}, not live{marks}."


def _format_quota_note(estimate: Estimate) -> str:
    """Return whether the account's quotas were checked; a table's rows are not built for it."""
    if not estimate.options.get("quota"):
        return "Quotas: not checked; --quota asks AWS, Azure and Google Cloud what your account may start."
    count = sum(one.is_refused for one in estimate.contexts)
    return f"Quotas: checked; too small for {count} offers, which are not recommended."


def _format_bill_note(estimate: Estimate) -> str:
    """Return the items included in and excluded from the bill."""
    missing = f" Not included: {', '.join(estimate.not_billed)}." if estimate.not_billed else ""
    terms = estimate.terms
    if terms.costs is None:
        return f"Included in the bill: training only.{missing}"
    tax = "no tax" if terms.tax is None else f"with {terms.tax.percent:g} % {terms.tax.name}"
    code, per_usd = terms.currency.code, terms.currency.per_usd
    rate = "" if code == USD.code else f" 1 USD = {per_usd:f} {code}."
    return f"Included in the bill: boot to shutdown, disk, egress, {tax} (--breakdown).{missing}{rate}"


def _format_times_note(estimate: Estimate, shown: Sequence[OfferEstimate]) -> str:
    """Return the bases of the times, and the unmodelled share of a step."""
    bases = {getattr(one.device_estimate.step_time, "basis", None) for one in shown}
    known = ", ".join(sorted(basis for basis in bases if basis)) or "none"
    share = sum(unmodelled.bytes_share for unmodelled in estimate.workload.unmodelled)
    names = ", ".join(unmodelled.name for unmodelled in estimate.workload.unmodelled[:3])
    unmodelled = f"; not modelled: {format_short(100 * share)} % of the bytes of a step ({names})" if names else ""
    return f"Times: {known}; ranges are 80 % intervals{unmodelled}."

"""Explanation of a decision: the recommended offer, the benefit of paying, and the price of an hour saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from ...frozen import Frozen
from ...numbers import format_device, format_duration, format_offer_name, format_short, format_usd
from ...units import SECONDS_PER_HOUR
from .ranking import Candidate, cheapest, fastest

if TYPE_CHECKING:
    from ...workload.model import Workload
    from ..cost_terms import Currency
    from ..question import Question
    from ..result.offer_estimate import OfferEstimate

SAMPLES_PRICED = 1e6
ANYWHERE = ("any", "local")


class Picks(Frozen):
    """Keys of the picked offers, and the candidates that they were picked from.

    Args:
        recommended, free, cheapest_paid, in_between, fastest_paid: Keys; None without one.
        candidates: All usable offers, by key.
        paid: Usable offers that cost money.
    """

    recommended: int | None
    free: int | None
    cheapest_paid: int | None
    in_between: int | None
    fastest_paid: int | None
    candidates: Mapping[int, Candidate]
    paid: Sequence[Candidate]


def explain_decision(
    picks: Picks,
    offers: Sequence[OfferEstimate],
    question: Question,
    *,
    workload: Workload,
    currency: Currency,
    passed_over: Sequence[Candidate] = (),
    spot: str = "",
) -> str:
    """Return what to take and why, and what the account's quota does not allow.

    Args:
        picks: The picked offers.
        offers: Offers by key.
        question: Deadline, budget and values of hours.
        workload: Workload of the run.
        currency: Currency of amounts.
        passed_over: Offers that would have been picked if the account's quota allowed them.
        spot: Comparison of spot with on demand, appended if a spot machine is recommended.
    """
    keys = (*picks.candidates, *(one.key for one in passed_over))
    words = _Words(
        offers=offers, currency=currency, is_run=any(offers[key].timeline is not None for key in keys)
    )
    is_spot = picks.recommended is not None and offers[picks.recommended].offer.purchase == "spot"
    parts = (
        _explain_picks(picks, question, words, workload),
        spot if is_spot else "",
        _explain_quota(picks, passed_over, words),
    )
    return " ".join(part for part in parts if part)


def _explain_picks(picks: Picks, question: Question, words: _Words, workload: Workload) -> str:
    """Return what to take and why."""
    if not picks.candidates:
        what = f"{workload.model} at batch {workload.batch_size}"
        return f"No recommendation: no offer runs {what} in one session at a known price."
    if picks.recommended is None:
        return _explain_limits(picks, question, words)
    taken = picks.candidates[picks.recommended]
    head = f"Take {words.describe(taken)}."
    why = _explain_free if picks.recommended == picks.free else _explain_paid
    return " ".join(part for part in (head, why(picks, taken, words), _format_values(question)) if part)


def compare_purchases(
    picks: Picks, other: Candidate, offers: Sequence[OfferEstimate], *, currency: Currency
) -> str:
    """Return cost, time and expected interruptions of the recommended machine on spot against on demand.

    Args:
        picks: The picked offers, one of them recommended.
        other: The recommended machine with the other purchase option.
        offers: Offers by key.
        currency: Currency of amounts.
    """
    if picks.recommended is None:
        return ""
    taken = picks.candidates[picks.recommended]
    words = _Words(offers=offers, currency=currency, is_run=offers[taken.key].timeline is not None)
    is_spot = offers[taken.key].offer.purchase == "spot"
    spot, steady = (taken, other) if is_spot else (other, taken)
    forecast = offers[spot.key].preemption_forecast
    risk = (
        "" if forecast is None else f"; spot is preempted {forecast.moments.preemptions:.2g} times on average"
    )
    if is_spot:
        return f"On demand it is {words.cost(steady.cost_usd)}, {words.time(steady.time_s)}{risk}."
    return f"On spot it is {words.cost(spot.cost_usd)}, {words.time(spot.time_s)}{risk}."


class _Words(Frozen):
    """Formats of offers and amounts in one currency, by run or by sample."""

    offers: Sequence[OfferEstimate]
    currency: Currency
    is_run: bool

    def name(self, one: Candidate) -> str:
        """Return the name of an offer, with its place if it is rented."""
        offer = self.offers[one.key].offer
        where = "" if offer.region in ANYWHERE else f", {offer.region}"
        spot = ", spot" if offer.purchase == "spot" else ""
        device = format_device(offer.accelerator, offer.devices)
        machine = format_offer_name(offer.provider, offer.instance_type, hosts=offer.hosts)
        return f"{machine} ({device}{where}{spot})"

    def describe(self, one: Candidate) -> str:
        """Return name, cost and time of an offer."""
        return f"{self.name(one)}: {self.cost(one.cost_usd)}, {self.time(one.time_s)}"

    def usd(self, usd: float) -> str:
        """Return an amount."""
        text = format_usd(float(self.currency.of_usd(Decimal(usd))))
        return self.currency.format(text)

    def cost(self, usd: float) -> str:
        """Return the cost of a run, or of a million samples."""
        if usd == 0:
            return "free"
        return self.usd(usd) if self.is_run else f"{self.usd(usd * SAMPLES_PRICED)} per million samples"

    def time(self, time_s: float) -> str:
        """Return the time of a run, or the samples per second."""
        return format_duration(time_s) if self.is_run else f"{format_short(1 / time_s)} samples/s"

    def saving(self, slow: Candidate, fast: Candidate) -> str:
        """Return the time that a faster offer saves."""
        if self.is_run:
            return f"saves {format_duration(slow.time_s - fast.time_s)}"
        return f"is {format_short(slow.time_s / fast.time_s)} times as fast"


def _price_of_hour(slow: Candidate, fast: Candidate) -> float:
    """Return the extra cost of a faster offer per hour saved [USD/h]."""
    return (fast.cost_usd - slow.cost_usd) / (slow.time_s - fast.time_s) * SECONDS_PER_HOUR


def _explain_free(picks: Picks, taken: Candidate, words: _Words) -> str:
    """Return the time that a paid offer would save, and its cost."""
    faster = [one for one in picks.paid if one.time_s < taken.time_s]
    if not faster or picks.fastest_paid is None:
        return "No paid offer is faster." if picks.paid else ""
    best = picks.candidates[picks.fastest_paid]
    least = min(faster, key=lambda one: _price_of_hour(taken, one))
    text = f"Paying {words.saving(taken, best).replace('saves', 'saves at most')}: {words.describe(best)};"
    hour = f"{text} each hour saved costs {words.usd(_price_of_hour(taken, best))}"
    if least.key == best.key:
        return f"{hour}."
    return f"{hour}, or {words.usd(_price_of_hour(taken, least))} with {words.describe(least)}."


def _explain_paid(picks: Picks, taken: Candidate, words: _Words) -> str:
    """Return the trade-offs: how much slower a cheaper offer is, and what a faster one costs."""
    parts = []
    if picks.free is not None:
        parts.append(
            f"The best free offer is {words.describe(picks.candidates[picks.free])}.".replace(": free,", ":")
        )
    if picks.cheapest_paid is not None and picks.cheapest_paid != taken.key:
        parts.append(f"The cheapest paid offer is {words.describe(picks.candidates[picks.cheapest_paid])}.")
    swift = picks.candidates[picks.fastest_paid] if picks.fastest_paid is not None else taken
    if swift.time_s < taken.time_s:
        hour = words.usd(_price_of_hour(taken, swift))
        parts.append(
            f"The fastest, {words.describe(swift)}, {words.saving(taken, swift)}; each hour saved costs {hour}."
        )
    elif picks.free is None and picks.cheapest_paid == taken.key:
        parts.append("It is both the cheapest and the fastest.")
    return " ".join(parts)


def _explain_quota(picks: Picks, passed_over: Sequence[Candidate], words: _Words) -> str:
    """Return the offers that the quota rules out, how to request more, and whether it is known for the pick."""
    refused, told = [], set()
    for one in passed_over:
        quota = words.offers[one.key].selected.quota
        if quota is not None and quota.link not in told:
            told.add(quota.link)
            refused.append(f"Not recommended because of your quota: {words.describe(one)}; {quota.why}")
    taken = None if picks.recommended is None else words.offers[picks.recommended].selected.quota
    if taken is not None and taken.state == "unknown":
        refused.insert(0, f"Whether your quota allows it is unknown: {taken.why}.")
    return " ".join(refused)


def _format_values(question: Question) -> str:
    """Return the hourly values used in the decision; empty without any."""
    values = {"your own time": question.hour_value_usd, "waiting": question.wait_value_usd}
    counted = [f"an hour of {what} at ${usd:g}" for what, usd in values.items() if usd]
    return f"This counts {' and '.join(counted)}." if counted else ""


def _explain_limits(picks: Picks, question: Question, words: _Words) -> str:
    """Return why no offer keeps deadline and budget."""
    ends: tuple[tuple[str, Callable[..., int | None], bool], ...] = (
        ("fastest", fastest, question.deadline_s is not None),
        ("cheapest", cheapest, question.budget_usd is not None),
    )
    found = []
    for what, choose, is_asked in ends:
        key = choose(picks.candidates.values()) if is_asked else None
        if key is not None:
            one = picks.candidates[key]
            most = f"up to {words.time(one.late_s)} and {words.cost(one.dear_usd)}"
            found.append(f"the {what} is {words.describe(one)} ({most})")
    return f"No offer is likely to meet {format_limits(question)}: {'; '.join(found)}."


def format_limits(question: Question) -> str:
    """Return deadline and budget as words: `a deadline of 2.0 h and a budget of $5`."""
    limits = []
    if question.deadline_s is not None:
        limits.append(f"a deadline of {format_duration(question.deadline_s)}")
    if question.budget_usd is not None:
        limits.append(f"a budget of ${question.budget_usd:g}")
    return " and ".join(limits)

"""Decision between free and paid offers, and its sentence: what to take, and whether paying is worth it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from ..records import Frozen
from ..units import SECONDS_PER_HOUR, format_device, format_duration, format_offer_name, format_short, format_usd
from .alternatives import own_hours
from .estimate import DECISION_ROLES, Decision
from .ranking import Candidate, cheapest, fastest, pareto, select_candidates

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import CostTerms, Currency
    from .offer_estimate import OfferEstimate
    from .offer_table import OfferTable
    from .question import Question
    from .ranking import RankedOffers


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
    words = _Words(offers=offers, currency=currency, is_run=any(offers[key].timeline is not None for key in keys))
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
    risk = "" if forecast is None else f"; spot is preempted {forecast.moments.preemptions:.2g} times on average"
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


def explain_price_age(paid: Sequence[Candidate], offers: Sequence[OfferEstimate], terms: CostTerms) -> str:
    """Return a warning if the age of a price alone could change the cheapest offer; else empty.

    The cheapest offer and a rival change places when ln(rival's cost / its cost) is within the half-width of both
    prices together (`price_range`).

    Args:
        paid: Offers that cost money.
        offers: Offers by key.
        terms: How fast prices move, and the current date.
    """
    from ..offers.price_history import OLD_AFTER_DAYS, compute_age_days

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
        name, than = (format_offer_name(one.provider, one.instance_type, hosts=one.hosts) for one in (old, other))
        return (
            f"The order may change with a current price: that of {name} is {age_days} days old, such prices "
            f"change by a factor of {format_short(math.exp(width))} in that time, and {than} is within that "
            "range: run `gpuplan catalog refresh`."
        )
    return ""


def decide(ranked: RankedOffers, question: Question, *, workload: Workload, terms: CostTerms) -> Decision:
    """Return the decision on ranked offers.

    Args:
        ranked: Offers in order.
        question: Deadline, budget, and values of the user's and the waiting hours.
        workload: Workload of the run.
        terms: Time at a machine, and the currency of the sentence.
    """
    picks = _pick(select_candidates(ranked), ranked, question, terms)
    passed_over = _find_refused(ranked, question, terms)
    other = None if picks.recommended is None else _find_other_purchase(ranked, picks.recommended)
    spot = "" if other is None else compare_purchases(picks, other, ranked.offers, currency=terms.currency)
    why = explain_decision(
        picks,
        ranked.offers,
        question,
        workload=workload,
        currency=terms.currency,
        passed_over=passed_over,
        spot=spot,
    )
    pays = picks.recommended not in (None, picks.free)
    aged = explain_price_age(picks.paid, ranked.offers, terms) if pays else ""
    return Decision(
        recommended=picks.recommended,
        free=picks.free,
        cheapest_paid=picks.cheapest_paid,
        in_between=picks.in_between,
        fastest_paid=picks.fastest_paid,
        sentence=f"{why} {aged}".rstrip(),
        spot=spot,
        passed_over=tuple(one.key for one in passed_over),
    )


def _find_other_purchase(ranked: RankedOffers, taken: int) -> Candidate | None:
    """Return the same machine in the same region with the other purchase option; None if it is not on offer."""
    own = ranked.offers.contexts[taken].offer
    place = (own.provider, own.instance_type, own.region, own.hosts)
    for key, context in enumerate(ranked.offers.contexts):
        one = context.offer
        is_other = (one.provider, one.instance_type, one.region, one.hosts) == place
        if is_other and one.purchase != own.purchase and ranked.usable[key]:
            time_s, usd = float(ranked.time_s[key]), float(ranked.cost_usd[key])
            return None if math.isnan(time_s + usd) else Candidate(key, time_s, usd, time_s, usd)
    return None


def _find_refused(ranked: RankedOffers, question: Question, terms: CostTerms) -> list[Candidate]:
    """Return the offers that would be picked if the account's quota allowed them."""
    contexts = ranked.offers.contexts
    if not any(context.is_refused for context in contexts):
        return []
    picks = _pick(select_candidates(ranked, any_quota=True), ranked, question, terms)
    keys = dict.fromkeys(getattr(picks, role) for role in DECISION_ROLES)
    return [picks.candidates[key] for key in keys if key is not None and contexts[key].is_refused]


def _pick(everything: Sequence[Candidate], ranked: RankedOffers, question: Question, terms: CostTerms) -> Picks:
    """Return the picks among some offers, restricted to those within deadline and budget if there are any."""
    kept = [one for one in everything if _keeps_limits(one, question)]
    candidates = {one.key: one for one in kept or everything}
    free = [one for one in candidates.values() if ranked.offers.is_free[one.key]]
    paid = [one for one in candidates.values() if not ranked.offers.is_free[one.key]]
    totals = {key: _total_usd(one, ranked.offers, question, terms) for key, one in candidates.items()}
    return Picks(
        recommended=_recommend(free, paid, totals) if kept else None,
        free=fastest(free),
        cheapest_paid=cheapest(paid),
        in_between=_find_in_between(free, paid),
        fastest_paid=fastest(paid),
        candidates=candidates,
        paid=paid,
    )


def _keeps_limits(one: Candidate, question: Question) -> bool:
    """Return whether an offer keeps deadline and budget even at its upper bounds."""
    in_time = question.deadline_s is None or one.late_s <= question.deadline_s
    return in_time and (question.budget_usd is None or one.dear_usd <= question.budget_usd)


def _recommend(free: Sequence[Candidate], paid: Sequence[Candidate], totals: dict[int, float]) -> int | None:
    """Return the fastest free offer, or a paid one of lower total with all hours; ties go to the faster."""
    best_free = fastest(free)
    best_paid = min(paid, key=lambda one: (totals[one.key], one.time_s), default=None)
    if best_paid is None or (best_free is not None and totals[best_free] <= totals[best_paid.key]):
        return best_free
    return best_paid.key


def _find_in_between(free: Sequence[Candidate], paid: Sequence[Candidate]) -> int | None:
    """Return the best compromise between the cheapest and the fastest paid offer, faster than any free one."""
    limit_s = min((one.time_s for one in free), default=float("inf"))
    by_key = {one.key: one for one in paid}
    inner = [by_key[key] for key in pareto(paid)[1:-1] if by_key[key].time_s < limit_s]
    best = min(inner, key=lambda one: one.time_s * one.cost_usd, default=None)
    return None if best is None else best.key


def _total_usd(one: Candidate, offers: OfferTable, question: Question, terms: CostTerms) -> float:
    """Return the money and the value of all hours of a run, or of a sample if its length is unknown [USD]."""
    selected, run = offers.contexts[one.key], offers.runs[offers.run_of[one.key]]
    place = selected.place
    hands_on = terms.bounds("hands_on_min", place) or (0.0, 0.0, 0.0)
    attention = terms.bounds("attention_share", place) or (0.0, 0.0, 0.0)
    hours = one.time_s / SECONDS_PER_HOUR
    own_h = own_hours(
        sessions=1 if run.timeline is not None else 0,
        machine_h=hours,
        hands_on_min=hands_on[1],
        attention_share=attention[1] if selected.attended else 0.0,
    )
    return compute_total_usd(
        money_usd=one.cost_usd,
        own_h=own_h,
        elapsed_h=hours,
        hour_value_usd=question.hour_value_usd,
        wait_value_usd=question.wait_value_usd,
    )


def compute_total_usd(
    *, money_usd: float, own_h: float, elapsed_h: float, hour_value_usd: float, wait_value_usd: float
) -> float:
    """Return money plus the user's hours plus the other hours until the end, each at its value [USD].

    Args:
        money_usd: Amount paid [USD].
        own_h: The user's time [h].
        elapsed_h: Time from start to end [h].
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an unattended hour until the end [USD/h].

    Example:
        >>> compute_total_usd(money_usd=1.0, own_h=0.5, elapsed_h=2.5, hour_value_usd=20.0, wait_value_usd=3.0)
        17.0
    """
    return money_usd + own_h * hour_value_usd + max(0.0, elapsed_h - own_h) * wait_value_usd

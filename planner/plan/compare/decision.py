"""Decision between free and paid offers: free first if it does the job, then whether paying is worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...units import SECONDS_PER_HOUR
from ..result.decision import DECISION_ROLES, Decision
from .alternatives import own_hours
from .decision_sentence import Picks, compare_purchases, explain_decision
from .price_age import explain_price_age
from .ranking import Candidate, cheapest, fastest, pareto, select_candidates

if TYPE_CHECKING:
    from ...workload.model import Workload
    from ..cost_terms import CostTerms
    from ..pricing.offer_table import OfferTable
    from ..question import Question
    from .ranking import RankedOffers


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


def _pick(
    everything: Sequence[Candidate], ranked: RankedOffers, question: Question, terms: CostTerms
) -> Picks:
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

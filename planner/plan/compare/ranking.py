"""Where offers stand: the order of an answer, and which of them to take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ..execution.scaling_mode import BatchScaling
from ..pricing.money import USD_OF_A_NANO
from ..result.offer_estimate import OfferEstimate
from ..result.recommendation import Recommendation
from .criteria import Candidate, SortBy, cheapest, cheapest_within_s, fastest, fastest_within_usd, pareto
from .sensitivity import compute_sensitivity

if TYPE_CHECKING:
    from ..question import Question

__all__ = ["RankedOffer", "compute_sort_values", "rank_key", "ranked", "recommend"]


class RankedOffer(NamedTuple):
    """An offer as the ranking sees it: time and cost of the run or, when its length is unknown, of a sample."""

    offer: OfferEstimate
    time_s: float | None
    cost_usd: float | None
    usable: bool


def ranked(offers: Iterable[OfferEstimate], sort: SortBy) -> list[RankedOffer]:
    """Return where offers stand, the best first, as `rank_key` orders them; of equals, in their order."""
    standings = [compute_sort_values(one) for one in offers]
    if sort == "co2":
        return sorted(standings, key=lambda standing: rank_key(standing, sort))
    known: list[RankedOffer] = []
    others: list[RankedOffer] = []
    for one in standings:
        (known if one.usable and one.time_s is not None and one.cost_usd is not None else others).append(one)
    # A sort keeps the order of equals, so that the last one decides; numbers are compared faster than tuples.
    first, second = ("cost_usd", "time_s") if sort == "cost" else ("time_s", "cost_usd")
    known.sort(key=attrgetter(second))
    known.sort(key=attrgetter(first))
    return known + sorted(others, key=lambda standing: rank_key(standing, sort))


def compute_sort_values(one: OfferEstimate) -> RankedOffer:
    """Return what decides where an offer stands."""
    schedule, bill = one.schedule, one.bill
    usable = not one.projection.is_ruled_out and one.offer.complete
    if schedule is None:
        return RankedOffer(one, *_merit_of_a_sample(one), usable)
    cost_usd = None if bill is None else bill.mid_nano * USD_OF_A_NANO
    return RankedOffer(one, schedule.wall_s.mid, cost_usd, usable and schedule.sessions == 1)


def rank_key(standing: RankedOffer, sort: SortBy) -> tuple[bool, bool, float, float]:
    """Return where an offer stands: usable before unusable, known before unknown, then the best."""
    one, time_s, cost_usd, usable = standing
    first, second = (cost_usd, time_s) if sort == "cost" else (time_s, cost_usd)
    if sort == "co2":
        co2_kg = None if time_s is None else one.co2_kg
        first, second = None if co2_kg is None else co2_kg.mid, cost_usd
    unknown = float("inf")
    return (
        not usable,
        first is None or second is None,
        unknown if first is None else first,
        unknown if second is None else second,
    )


def _merit_of_a_sample(one: OfferEstimate) -> tuple[float | None, float | None]:
    """Return time and cost of a sample, for runs whose length is unknown [s], [USD]."""
    step_time_s = one.projection.step_time_s
    if step_time_s is None:
        return (None, None)
    samples = one.projection.run.global_batch_size
    per_1000 = one.usd_per_1000_steps
    return (step_time_s.mid / samples, None if per_1000 is None else float(per_1000) / (1000 * samples))


def _candidates(standings: Sequence[RankedOffer], spread: BatchScaling) -> list[Candidate]:
    """Return the offers that could be taken, in their order; of those that differ in price alone, the cheapest."""
    best: dict[object, Candidate] = {}
    for index, (one, time_s, cost_usd, usable) in enumerate(standings):
        if not usable or time_s is None or cost_usd is None:
            continue
        alike = index if one.bill is None else (id(one.bill.rental), one.offer.provider, one.is_free)
        known = best.get(alike)
        if known is None or cost_usd < known.cost_usd:
            candidate = _candidate(index, standings[index], spread)
            if candidate is not None:
                best[alike] = candidate
    return sorted(best.values(), key=attrgetter("key"))


def _candidate(index: int, standing: RankedOffer, spread: BatchScaling) -> Candidate | None:
    """Return what the ranking needs of an offer that could be taken, None for others."""
    one, time_s, cost_usd, _ = standing
    projection = one.projection
    if time_s is None or cost_usd is None:
        return None
    if projection.memory.fits is not True or not spread.recommends(projection.run):
        return None
    if one.schedule is not None and one.bill is not None:
        late_s, dear_usd = one.schedule.wall_s.high, one.bill.nano[2] * USD_OF_A_NANO
    elif projection.step_time_s is not None:
        lateness = projection.step_time_s.high / projection.step_time_s.mid
        late_s, dear_usd = time_s * lateness, cost_usd * lateness
    else:
        return None
    if one.outlook is not None:
        late_s = max(late_s, one.outlook.wall_p90_s)
    return Candidate(index, time_s, cost_usd, late_s, dear_usd)


def recommend(standings: Sequence[RankedOffer], question: Question) -> Recommendation:
    """Return which offers to take."""
    spread = BatchScaling(scaling=question.scaling)
    offers = [standing.offer for standing in standings]
    free: list[Candidate] = []
    paid: list[Candidate] = []
    for candidate in _candidates(standings, spread):
        (free if offers[candidate.key].is_free else paid).append(candidate)
    if all(one.is_free for one in offers):
        paid = free
    deadline_s, budget_usd = question.deadline_s, question.budget_usd
    best = cheapest(paid)
    return Recommendation(
        cheapest=best,
        sensitivity=compute_sensitivity(best, paid, offers),
        fastest=fastest(paid),
        within_deadline=None if deadline_s is None else cheapest_within_s(paid, deadline_s),
        within_budget=None if budget_usd is None else fastest_within_usd(paid, budget_usd),
        free=fastest(free),
        pareto=pareto(paid),
    )

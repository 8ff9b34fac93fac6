"""Where offers stand: the order of an answer, and which of them to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .rank import Candidate, SortBy, cheapest, cheapest_within_s, fastest, fastest_within_usd, pareto
from .recommendation import Recommendation
from .result import OfferEstimate
from .sensitivity import sensitivity_of
from .spreading import Spread

if TYPE_CHECKING:
    from .estimate import Question

__all__ = ["Standing", "rank_key", "recommend", "standing_of"]

NANO = 1e-9


class Standing(NamedTuple):
    """An offer as the ranking sees it: time and cost of the run or, when its length is unknown, of a sample."""

    offer: OfferEstimate
    time_s: float | None
    cost_usd: float | None
    usable: bool


def standing_of(one: OfferEstimate) -> Standing:
    """Return what decides where an offer stands."""
    schedule = one.schedule
    usable = (
        not one.projection.is_ruled_out
        and one.offer.complete
        and (schedule is None or schedule.sessions == 1)
    )
    if schedule is not None:
        return Standing(one, schedule.wall_s.mid, one.bill.mid_nano * NANO if one.bill else None, usable)
    return Standing(one, *_merit_of_a_sample(one), usable)


def rank_key(standing: Standing, sort: SortBy) -> tuple[bool, bool, float, float]:
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


def _candidate(index: int, standing: Standing, spread: Spread) -> Candidate | None:
    """Return what the ranking needs of an offer that could be taken, None for others."""
    one, time_s, cost_usd, usable = standing
    projection = one.projection
    if not usable or time_s is None or cost_usd is None:
        return None
    if projection.memory.fits is not True or not spread.recommends(projection.run):
        return None
    if one.schedule is not None and one.bill is not None:
        late_s, dear_usd = one.schedule.wall_s.high, one.bill.high_nano * NANO
    elif projection.step_time_s is not None:
        lateness = projection.step_time_s.high / projection.step_time_s.mid
        late_s, dear_usd = time_s * lateness, cost_usd * lateness
    else:
        return None
    if one.outlook is not None:
        late_s = max(late_s, one.outlook.wall_p90_s)
    return Candidate(index, time_s, cost_usd, late_s, dear_usd)


def recommend(standings: Sequence[Standing], question: Question) -> Recommendation:
    """Return which offers to take."""
    spread = Spread(scaling=question.scaling)
    offers = [standing.offer for standing in standings]
    found = (_candidate(index, standing, spread) for index, standing in enumerate(standings))
    candidates = [candidate for candidate in found if candidate is not None]
    free: list[Candidate] = []
    paid: list[Candidate] = []
    for candidate in candidates:
        (free if offers[candidate.key].is_free else paid).append(candidate)
    if all(one.is_free for one in offers):
        paid = free
    deadline_s, budget_usd = question.deadline_s, question.budget_usd
    best = cheapest(paid)
    return Recommendation(
        cheapest=best,
        sensitivity=sensitivity_of(best, paid, offers),
        fastest=fastest(paid),
        within_deadline=None if deadline_s is None else cheapest_within_s(paid, deadline_s),
        within_budget=None if budget_usd is None else fastest_within_usd(paid, budget_usd),
        free=fastest(free),
        pareto=pareto(paid),
    )

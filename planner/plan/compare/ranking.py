"""The order of the offers of an answer, and which of them to take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ..execution.scaling_mode import BatchScaling
from ..pricing.money import NANO, USD_OF_A_NANO, rental_nano
from ..result.recommendation import Recommendation
from .criteria import Candidate, SortBy, cheapest, cheapest_within_s, fastest, fastest_within_usd, pareto
from .sensitivity import compute_sensitivity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..pricing.offer_table import OfferTable
    from ..pricing.offer_terms import UnpricedRun
    from ..question import Question

__all__ = ["RankedOffers", "rank_offers", "recommend"]


class RankedOffers(NamedTuple):
    """Offers in order with time and cost of the run or, if its length is unknown, of a sample.

    Args:
        offers: Best first.
        time_s: Central estimate; NaN: unknown [s].
        cost_usd: Central estimate; NaN: unknown [USD].
        usable: Whether the step can run there, on a complete machine, in one session.
    """

    offers: OfferTable
    time_s: NDArray[np.float64]
    cost_usd: NDArray[np.float64]
    usable: NDArray[np.bool_]


def rank_offers(offers: OfferTable, sort: SortBy) -> RankedOffers:
    """Return offers in order: usable ones first, then known ones, then the best; equal ones keep their order."""
    import numpy as np

    time_s, cost_usd = _compute_times(offers), _compute_costs(offers)
    complete = np.array([context.offer.complete for context in offers.contexts], dtype=bool)
    usable = complete & np.array([_is_usable(run) for run in offers.runs])[offers.run_of]
    first, second = (cost_usd, time_s) if sort == "cost" else (time_s, cost_usd)
    if sort == "co2":
        co2_kg = (one.co2_kg for one in offers)
        first = np.array([np.nan if co2 is None else co2.mid for co2 in co2_kg])
    unknown = np.isnan(first) | np.isnan(second)
    keys = (np.nan_to_num(second, nan=np.inf, posinf=np.inf), np.nan_to_num(first, nan=np.inf, posinf=np.inf))
    order = np.lexsort((*keys, unknown, ~usable))  # the last key decides first
    return RankedOffers(offers.reorder(order), time_s[order], cost_usd[order], usable[order])


def _compute_times(offers: OfferTable) -> NDArray[np.float64]:
    """Return the time of the run or, if its length is unknown, of a sample; NaN: unknown [s]."""
    import numpy as np

    return np.array([_time_s(run) for run in offers.runs])[offers.run_of]


def _time_s(run: UnpricedRun) -> float:
    if run.schedule is not None:
        return run.schedule.wall_s.mid
    step_time_s = run.projection.step_time_s
    return math.nan if step_time_s is None else step_time_s.mid / run.projection.run.global_batch_size


def _compute_costs(offers: OfferTable) -> NDArray[np.float64]:
    """Return the cost of the run or, if its length is unknown, of a sample; NaN: unknown [USD]."""
    import numpy as np

    costs = np.full(len(offers), np.nan)
    for run, rows in offers.iter_priced_rows():
        prices, step_time_s = offers.price_nano[rows], run.projection.step_time_s
        if run.rental is not None:
            costs[rows] = run.rental.compute_total(prices, 1).astype(float) * USD_OF_A_NANO
        elif step_time_s is not None:
            per_1000 = rental_nano(duration_s=1000 * step_time_s.mid, price_nano=prices) / NANO
            costs[rows] = per_1000.astype(float) / (1000 * run.projection.run.global_batch_size)
    return costs


def _is_usable(run: UnpricedRun) -> bool:
    """Return whether the step can run, and the whole run in one session."""
    return not run.projection.is_ruled_out and (run.schedule is None or run.schedule.sessions == 1)


def _select_candidates(ranked: RankedOffers, spread: BatchScaling) -> list[Candidate]:
    """Return the offers that could be taken, in order; of those that differ in price alone, the cheapest."""
    import numpy as np

    offers = ranked.offers
    fits = [
        run.projection.memory.fits is True and spread.recommends(run.projection.run) for run in offers.runs
    ]
    known = ~np.isnan(ranked.time_s) & ~np.isnan(ranked.cost_usd)
    rows = np.flatnonzero(ranked.usable & known & np.array(fits)[offers.run_of])
    alike = _number_equal_runs(offers)[offers.run_of[rows]] * 2 + offers.is_free[rows]
    alike = np.where(alike < 0, -1 - rows, alike)  # of unknown length: each its own
    by_cost = np.lexsort((rows, ranked.cost_usd[rows], alike))
    _, cheapest_of = np.unique(alike[by_cost], return_index=True)
    return [_build_candidate(ranked, row) for row in np.sort(rows[by_cost[cheapest_of]]).tolist()]


def _number_equal_runs(offers: OfferTable) -> NDArray[np.intp]:
    """Return a number for each run, the same for runs of one provider under the same fees; -1: length unknown."""
    import numpy as np

    numbers: dict[object, int] = {}
    found = np.full(len(offers.runs), -1, dtype=np.intp)
    for row in offers.first_rows():
        position = offers.run_of[row]
        rental = offers.runs[position].rental
        if rental is not None:
            key = (id(rental), offers.contexts[row].offer.provider)
            found[position] = numbers.setdefault(key, len(numbers))
    return found


def _build_candidate(ranked: RankedOffers, row: int) -> Candidate:
    """Return an offer's central estimates and upper ends."""
    offers = ranked.offers
    run, time_s, cost_usd = (
        offers.runs[offers.run_of[row]],
        float(ranked.time_s[row]),
        float(ranked.cost_usd[row]),
    )
    step_time_s = run.projection.step_time_s
    if run.schedule is not None and run.rental is not None:
        late_s = run.schedule.wall_s.high
        dear_usd = run.rental.compute_total(offers.price_nano[row], 2) * USD_OF_A_NANO
    else:
        lateness = 1.0 if step_time_s is None else step_time_s.high / step_time_s.mid
        late_s, dear_usd = time_s * lateness, cost_usd * lateness
    if run.outlook is not None:
        late_s = max(late_s, run.outlook.wall_p90_s)
    return Candidate(row, time_s, cost_usd, late_s, dear_usd)


def recommend(ranked: RankedOffers, question: Question) -> Recommendation:
    """Return the offers to take."""
    spread = BatchScaling(scaling=question.scaling)
    offers = ranked.offers
    is_free = offers.is_free
    free: list[Candidate] = []
    paid: list[Candidate] = []
    for candidate in _select_candidates(ranked, spread):
        (free if is_free[candidate.key] else paid).append(candidate)
    if is_free.all():
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

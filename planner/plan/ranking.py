"""Ranking of offers, recommended offers, and the sensitivity of the cheapest choice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .estimate import Recommendation, Sensitivity
from .money import NANO, USD_OF_A_NANO, compute_rental_nano
from .question import SortBy
from .timeline import TRAINING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .bill import UnpricedRun
    from .offer_estimate import OfferEstimate
    from .offer_table import OfferTable
    from .question import Question


class RankedOffers(NamedTuple):
    """Offers in order with time and cost of the run or, if its length is unknown, of a sample.

    Args:
        offers: Best first.
        time_s: Central estimate; NaN if unknown [s].
        cost_usd: Central estimate; NaN if unknown [USD].
        usable: Whether the offer is a complete machine that can run the step, and the whole run in one session.
    """

    offers: OfferTable
    time_s: NDArray[np.float64]
    cost_usd: NDArray[np.float64]
    usable: NDArray[np.bool_]


def rank_offers(offers: OfferTable, sort: SortBy) -> RankedOffers:
    """Rank offers: usable ones first, then those with known values, then by the criterion; the sort is stable."""
    import numpy as np

    time_s = np.array([_time_s(run) for run in offers.runs])[offers.run_of]
    cost_usd = _compute_costs(offers)
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


def _time_s(run: UnpricedRun) -> float:
    """Return the time of the run or, if its length is unknown, of a sample; NaN if unknown [s]."""
    if run.timeline is not None:
        return run.timeline.wall_s.mid
    step_time_s = run.device_estimate.step_time_s
    return math.nan if step_time_s is None else step_time_s.mid / run.device_estimate.run.global_batch_size


def _compute_costs(offers: OfferTable) -> NDArray[np.float64]:
    """Return the cost of the run or, if its length is unknown, of a sample; NaN if unknown [USD]."""
    import numpy as np

    costs = np.full(len(offers), np.nan)
    priced = offers.price_nano != None  # noqa: E711 - compares every element
    billed = np.flatnonzero(priced & offers.has_cost_basis)
    costs[billed] = offers.compute_totals(billed, 1).astype(float) * USD_OF_A_NANO
    for row in np.flatnonzero(priced & ~offers.has_cost_basis).tolist():
        one = offers.runs[offers.run_of[row]].device_estimate
        if one.step_time_s is not None:
            duration_s, price = 1000 * one.step_time_s.mid, offers.price_nano[row]
            per_1000_usd = compute_rental_nano(duration_s=duration_s, price_nano=price) / NANO
            costs[row] = per_1000_usd / (1000 * one.run.global_batch_size)
    return costs


def _is_usable(run: UnpricedRun) -> bool:
    """Return whether the step can run, and the whole run in one session."""
    return not run.device_estimate.is_ruled_out and (run.timeline is None or run.timeline.sessions == 1)


def select_candidates(ranked: RankedOffers, *, any_quota: bool = False) -> list[Candidate]:
    """Return the usable offers in order; of offers that differ only in price, the cheapest.

    Args:
        ranked: Offers in order.
        any_quota: Whether to include offers for which the account's quota is too small.
    """
    import numpy as np

    offers = ranked.offers
    fits = [
        run.device_estimate.memory.fits is True and run.device_estimate.run.is_recommended for run in offers.runs
    ]
    known = ~np.isnan(ranked.time_s) & ~np.isnan(ranked.cost_usd)
    allowed = np.array([any_quota or not context.is_refused for context in offers.contexts], dtype=bool)
    rows = np.flatnonzero(ranked.usable & known & allowed & np.array(fits)[offers.run_of])
    alike = _number_equal_runs(offers)[offers.run_of[rows]] * 2 + offers.is_free[rows]
    alike = np.where(alike < 0, -1 - rows, alike)  # of unknown length: each its own
    by_cost = np.lexsort((rows, ranked.cost_usd[rows], alike))
    _, cheapest_of = np.unique(alike[by_cost], return_index=True)
    return _build_candidates(ranked, np.sort(rows[by_cost[cheapest_of]]))


def _number_equal_runs(offers: OfferTable) -> NDArray[np.intp]:
    """Return a group number per run: equal for runs of one provider under the same fees; -1 for unknown length."""
    import numpy as np

    numbers: dict[object, int] = {}
    found = np.full(len(offers.runs), -1, dtype=np.intp)
    for row in offers.first_rows():
        position = offers.run_of[row]
        cost_basis = offers.runs[position].cost_basis
        if cost_basis is not None:
            key = (id(cost_basis), offers.contexts[row].offer.provider)
            found[position] = numbers.setdefault(key, len(numbers))
    return found


def _build_candidates(ranked: RankedOffers, rows: NDArray[np.intp]) -> list[Candidate]:
    """Return the central estimates and upper ends of some offers."""
    offers = ranked.offers
    billed = rows[offers.has_cost_basis[rows]]
    high_usd = offers.compute_totals(billed, 2) * USD_OF_A_NANO
    dear_usd = dict(zip(billed.tolist(), high_usd.tolist(), strict=True))
    candidates = []
    columns = (rows, offers.run_of[rows], ranked.time_s[rows], ranked.cost_usd[rows])
    for row, position, time_s, cost_usd in zip(*(column.tolist() for column in columns), strict=True):
        run = offers.runs[position]
        step_time_s = run.device_estimate.step_time_s
        lateness = 1.0 if step_time_s is None else step_time_s.high / step_time_s.mid
        late_s = time_s * lateness if run.timeline is None else run.timeline.wall_s.high
        if run.preemption_forecast is not None:
            late_s = max(late_s, run.preemption_forecast.wall_p90_s)
        usd = dear_usd.get(row, cost_usd * lateness)
        candidates.append(Candidate(row, time_s, cost_usd, late_s, usd))
    return candidates


def recommend(ranked: RankedOffers, question: Question) -> Recommendation:
    """Return the recommended offers."""
    offers = ranked.offers
    is_free = offers.is_free
    free: list[Candidate] = []
    paid: list[Candidate] = []
    for candidate in select_candidates(ranked):
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


def compute_sensitivity(
    winner: int | None, candidates: Sequence[Candidate], offers: Sequence[OfferEstimate]
) -> Sensitivity | None:
    """Return the changes after which another machine wins; None without a winner, a second machine or a bill.

    Args:
        winner: Position of the cheapest offer.
        candidates: Usable offers; their keys are positions in `offers`.
        offers: All offers.
    """
    if winner is None:
        return None
    machine = _machine(offers[winner])
    by_cost = sorted(candidates, key=lambda c: (c.cost_usd, c.time_s))
    others = (c for c in by_cost if _machine(offers[c.key]) != machine and offers[c.key].bill is not None)
    rival = next(others, None)
    if rival is None:
        return None
    own, other, timeline = offers[winner].bill, offers[rival.key].bill, offers[winner].timeline
    if own is None or other is None or timeline is None:
        return None
    gap = other.nano[1] - own.nano[1]
    share = timeline.time_s(TRAINING).mid / timeline.total_s.mid
    paid = own.machine_nano
    if paid <= 0 or share <= 0:
        return None
    return Sensitivity(
        runner_up=rival.key,
        price_share=max(0.0, gap / paid),
        step_time_share=max(0.0, gap / (paid * share)),
        certain=own.nano[2] <= other.nano[0],
    )


def _machine(one: OfferEstimate) -> tuple[str, str, float]:
    """Return the identity of a machine, equal for its other purchase options, sizes and regions."""
    return one.offer.provider, one.offer.accelerator, one.offer.devices


class Candidate(NamedTuple):
    """Usable offer.

    Args:
        key: Caller's key of the offer.
        time_s, cost_usd: Central estimates of the run or of one sample [s], [USD].
        late_s, dear_usd: Upper ends of the 80 % intervals [s], [USD].
    """

    key: int
    time_s: float
    cost_usd: float
    late_s: float
    dear_usd: float


def cheapest(candidates: Iterable[Candidate]) -> int | None:
    """Return the cheapest candidate, the fastest of equally cheap ones; None without candidates."""
    best = min(candidates, key=lambda c: (c.cost_usd, c.time_s), default=None)
    return best.key if best else None


def fastest(candidates: Iterable[Candidate]) -> int | None:
    """Return the fastest candidate, the cheapest of equally fast ones; None without candidates."""
    best = min(candidates, key=lambda c: (c.time_s, c.cost_usd), default=None)
    return best.key if best else None


def cheapest_within_s(candidates: Iterable[Candidate], deadline_s: float) -> int | None:
    """Return the cheapest candidate that meets the deadline even at the upper end of its interval.

    Args:
        candidates: To choose from.
        deadline_s: Maximum time of the run [s].
    """
    return cheapest(c for c in candidates if c.late_s <= deadline_s)


def fastest_within_usd(candidates: Iterable[Candidate], budget_usd: float) -> int | None:
    """Return the fastest candidate that keeps the budget even at the upper end of its interval.

    Args:
        candidates: To choose from.
        budget_usd: Maximum cost of the whole run [USD].
    """
    return fastest(c for c in candidates if c.dear_usd <= budget_usd)


def pareto(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    """Return the Pareto-optimal candidates in time and cost, fastest first.

    A candidate is dominated by one that is at least as good in both; the first of equal candidates is kept.
    """
    front: list[int] = []
    least_usd = float("inf")
    for candidate in sorted(candidates, key=lambda c: (c.time_s, c.cost_usd)):
        if candidate.cost_usd < least_usd:
            front.append(candidate.key)
            least_usd = candidate.cost_usd
    return tuple(front)

"""Order of offers, what of them can be taken, recommended offers, and the sensitivity of the cheapest choice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..units import SECONDS_PER_HOUR
from .estimate import Recommendation, Sensitivity
from .money import NANO, USD_OF_A_NANO, compute_rental_nano
from .timeline import TRAINING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .bill import UnpricedRun
    from .offer_table import OfferTable
    from .question import Question

    Floats = NDArray[np.float64]
    Rows = NDArray[np.intp]
    Mask = NDArray[np.bool_]


NEVER_TAKEN = frozenset({"reserved", "unlisted", "retired"})


class RankedOffers(NamedTuple):
    """Offers in order with time, cost and total of the run or, if its length is unknown, of a sample.

    Args:
        offers: Best first.
        time_s: Central estimate; NaN if unknown [s].
        cost_usd: Central estimate; NaN if unknown [USD].
        takable: Whether it can be had, is a complete machine, and runs the work in a known time at a known price.
        refused: Whether the account's quota alone forbids that.
    """

    offers: OfferTable
    time_s: Floats
    cost_usd: Floats
    takable: Mask
    refused: Mask


def compute_total_usd(
    *, money_usd: Any, own_h: Any, wall_h: Any, hour_value_usd: float, wait_value_usd: float, aged_share: Any = 0.0
) -> Any:
    """Return what decides between offers: money, the user's hours and the wait, for numbers or columns [USD].

    Args:
        money_usd: Amount paid [USD].
        own_h: The user's hours: setting up, and watching a session [h].
        wall_h: Time from boot to results [h].
        hour_value_usd: Value of an hour of the user's time [USD/h].
        wait_value_usd: Value of an hour of waiting [USD/h].
        aged_share: Allowance for a price that is too old to decide alone: the upper end of what it may be today,
            so that a fresher price within that range wins [-].

    Each term grows with one quantity only, so that the least total is never worse in all of them.

    Example:
        >>> compute_total_usd(money_usd=1.0, own_h=0.5, wall_h=2.0, hour_value_usd=20.0, wait_value_usd=3.0)
        17.0
    """
    return money_usd * (1.0 + aged_share) + own_h * hour_value_usd + wall_h * wait_value_usd


def rank_offers(offers: OfferTable, question: Question, *, one_device: bool = False) -> RankedOffers:
    """Rank offers: usable ones first, then those with known values, then by the criterion; the sort is stable."""
    import numpy as np

    total_usd, time_s, cost_usd = compute_totals(offers, question)
    complete = offers.of_offers(lambda one: one.offer.complete, bool)
    possible = complete & offers.of_runs(lambda run: run.device_estimate.memory.fits is True, bool)
    usable = complete & offers.of_runs(lambda run: not run.device_estimate.is_ruled_out, bool)
    first, second = (time_s, cost_usd) if question.sort == "time" else (cost_usd, time_s)
    if question.sort == "co2":
        co2_kg = (one.co2_kg for one in offers)
        first, second = np.array([np.nan if co2 is None else co2.mid for co2 in co2_kg]), cost_usd
    unknown = np.isnan(first) | np.isnan(second)
    keys = (np.nan_to_num(second, nan=np.inf, posinf=np.inf), np.nan_to_num(first, nan=np.inf, posinf=np.inf))
    order = np.lexsort((*keys, unknown, ~usable))  # the last key decides first
    possible &= ~np.isnan(total_usd)
    takable, refused = _find_takable(offers, possible & usable, question, one_device=one_device)
    if question.filters.accelerators and not (takable.any() or refused.any()):
        takable, refused = _find_takable(offers, possible, question, one_device=one_device)
    return RankedOffers(offers.reorder(order), time_s[order], cost_usd[order], takable[order], refused[order])


def compute_totals(offers: OfferTable, question: Question) -> tuple[Floats, Floats, Floats]:
    """Set and return the totals of offers, with the times and costs that they come from [USD], [s], [USD]."""
    time_s, cost_usd = offers.of_runs(_time_s), _compute_costs(offers)
    total_usd = offers.total_usd = compute_total_usd(
        money_usd=cost_usd,
        own_h=offers.own_h,
        wall_h=time_s / SECONDS_PER_HOUR,
        hour_value_usd=question.hour_value_usd,
        wait_value_usd=question.wait_value_usd,
        aged_share=offers.aged_shares,
    )
    return total_usd, time_s, cost_usd


def _find_takable(offers: OfferTable, known: Mask, question: Question, *, one_device: bool) -> tuple[Mask, Mask]:
    """Return which offers can be taken, and which the account's quota alone forbids.

    What can no longer or not simply be had, or runs no Keras 3, is taken only where its accelerator is named and
    has nothing else.
    """
    if one_device and not (question.filters.devices and min(question.filters.devices) > 1):
        known = known & offers.of_offers(lambda one: one.offer.devices <= 1, bool)
    refused = offers.of_offers(lambda one: one.is_refused, bool)
    had = known & ~refused & ~offers.of_offers(lambda one: one.availability in NEVER_TAKEN, bool)
    refused &= known
    if question.filters.accelerators and not had.any() and not refused.any():
        return known, refused
    return had, refused


def _time_s(run: UnpricedRun) -> float:
    """Return the time of the run or, if its length is unknown, of a sample; NaN if unknown [s]."""
    if run.timeline is not None:
        return run.timeline.wall_s.mid
    step_time_s = run.device_estimate.step_time_s
    return math.nan if step_time_s is None else step_time_s.mid / run.device_estimate.run.global_batch_size


def _compute_costs(offers: OfferTable) -> Floats:
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


class Bounds(NamedTuple):
    """Lower ends, central estimates and upper ends of a column."""

    low: Floats
    mid: Floats
    high: Floats


def compute_time_bounds(ranked: RankedOffers, rows: Rows) -> Bounds:
    """Return the 80 % intervals of the times of some rows, with the spread of preemptions [s]."""
    import numpy as np

    ends = [_compute_time_ends(run) for run in ranked.offers.runs]
    low, high = (np.array([one[end] for one in ends])[ranked.offers.run_of[rows]] for end in range(2))
    return Bounds(low, ranked.time_s[rows], high)


def _compute_time_ends(run: UnpricedRun) -> tuple[float, float]:
    if run.timeline is None:
        step_time_s, samples = run.device_estimate.step_time_s, run.device_estimate.run.global_batch_size
        if step_time_s is None:
            return math.nan, math.nan
        return step_time_s.low / samples, step_time_s.high / samples
    wall_s, forecast = run.timeline.wall_s, run.preemption_forecast
    return wall_s.low, wall_s.high if forecast is None else max(wall_s.high, forecast.wall_p90_s)


def compute_cost_bounds(ranked: RankedOffers, rows: Rows) -> Bounds:
    """Return the 80 % intervals of the costs of some rows, whose runs have a known length [USD]."""
    low, high = (ranked.offers.compute_totals(rows, end).astype(float) * USD_OF_A_NANO for end in (0, 2))
    return Bounds(low, ranked.cost_usd[rows], high)


def find_first(rows: Rows, *keys: Floats | Mask) -> int | None:
    """Return the row with the least first key, of equal ones with the least second; None for no rows."""
    import numpy as np

    if not rows.size:
        return None
    return int(rows[np.lexsort([key[rows] for key in reversed(keys)])[0]])


def find_pareto(rows: Rows, time_s: Floats, cost_usd: Floats) -> tuple[int, ...]:
    """Return the Pareto-optimal rows in time and cost, fastest first.

    A row is dominated by one that is at least as good in both; the first of equal rows is kept.

    Args:
        rows: Positions of offers.
        time_s, cost_usd: Columns of all offers [s], [USD].
    """
    front: list[int] = []
    least_usd = math.inf
    order = sorted(zip(time_s[rows].tolist(), cost_usd[rows].tolist(), rows.tolist(), strict=True))
    for _, usd, row in order:
        if usd < least_usd:
            front.append(row)
            least_usd = usd
    return tuple(front)


def find_undominated(ranked: RankedOffers) -> tuple[int, ...]:
    """Return the offers that can be taken and that no other beats in money, time and the user's own hours.

    An offer is beaten by one that is at least as good in all three and better in one; old prices count with their
    allowance.
    """
    import numpy as np

    offers = ranked.offers
    money_usd = ranked.cost_usd * (1.0 + offers.aged_shares)
    columns = np.stack([money_usd, ranked.time_s, offers.own_h], axis=1)
    rows = np.flatnonzero(ranked.takable)
    rows = rows[np.lexsort((columns[rows, 2], columns[rows, 1], columns[rows, 0]))]
    front: list[int] = []
    while rows.size:  # the cheapest first: none is beaten by a later one
        front.append(int(rows[0]))
        rows = rows[(columns[rows] < columns[rows[0]]).any(axis=1)]
    return tuple(front)


def recommend(ranked: RankedOffers, question: Question) -> Recommendation:
    """Return the recommended offers, of those that can be taken and do the whole run in one session."""
    import numpy as np

    offers, time_s, cost_usd = ranked.offers, ranked.time_s, ranked.cost_usd
    able = ranked.takable & offers.of_runs(lambda run: run.timeline is None or run.timeline.sessions == 1, bool)
    free, paid = np.flatnonzero(able & offers.is_free), np.flatnonzero(able & ~offers.is_free)
    if offers.is_free.all():
        paid = free
    in_time, in_budget = paid[:0], paid[:0]
    if question.deadline_s is not None:
        in_time = paid[compute_time_bounds(ranked, paid).high <= question.deadline_s]
    if question.budget_usd is not None:
        in_budget = paid[compute_cost_bounds(ranked, paid).high <= question.budget_usd]
    cheapest = find_first(paid, cost_usd, time_s)
    return Recommendation(
        cheapest=cheapest,
        sensitivity=_compute_sensitivity(cheapest, paid[np.lexsort((time_s[paid], cost_usd[paid]))], offers),
        fastest=find_first(paid, time_s, cost_usd),
        within_deadline=find_first(in_time, cost_usd, time_s),
        within_budget=find_first(in_budget, time_s, cost_usd),
        free=find_first(free, time_s, cost_usd),
        pareto=find_pareto(paid, time_s, cost_usd),
    )


def _compute_sensitivity(winner: int | None, by_cost: Rows, offers: OfferTable) -> Sensitivity | None:
    """Return the changes after which another machine wins; None without a winner, a second machine or a bill."""
    if winner is None:
        return None
    machine = _machine(offers, winner)
    rival = next((row for row in by_cost.tolist() if _machine(offers, row) != machine), None)
    if rival is None:
        return None
    own, other, timeline = offers[winner].bill, offers[rival].bill, offers[winner].timeline
    if own is None or other is None or timeline is None:
        return None
    gap = other.nano[1] - own.nano[1]
    share = timeline.time_s(TRAINING).mid / timeline.total_s.mid
    paid = own.machine_nano
    if paid <= 0 or share <= 0:
        return None
    return Sensitivity(
        runner_up=rival,
        price_share=max(0.0, gap / paid),
        step_time_share=max(0.0, gap / (paid * share)),
        certain=own.nano[2] <= other.nano[0],
    )


def _machine(offers: OfferTable, row: int) -> tuple[str, str, float]:
    """Return the identity of a machine, equal for its other purchase options, sizes and regions."""
    offer = offers.contexts[row].offer
    return offer.provider, offer.accelerator, offer.devices

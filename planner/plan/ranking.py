"""Order of offers, what of them can be taken, and recommended offers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..units import SECONDS_PER_HOUR
from .estimate import Recommendation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .bill import UnpricedRun
    from .offer_table import OfferTable
    from .question import Question

    Floats = NDArray[np.float64]
    Rows = NDArray[np.intp]
    Mask = NDArray[np.bool_]


NEVER_TAKEN = ("reserved", "unlisted", "retired")


def compute_total_usd(
    *, money_usd: Any, own_h: Any, wall_h: Any, hour_value_usd: float, wait_value_usd: float, aged_share: Any = 0.0
) -> Any:
    """Return what decides between offers: money, the user's hours and the wait, for numbers or columns [USD].

    `own_h` are for setting up and watching a session, `wall_h` from boot to results; values of hours in USD/h.
    `aged_share` is the allowance for a price that is too old to decide alone: the upper end of what it may be
    today, so that a fresher price within that range wins [-]. Each term grows with one quantity only, so that the
    least total is never worse in all of them.

    Example:
        >>> compute_total_usd(money_usd=1.0, own_h=0.5, wall_h=2.0, hour_value_usd=20.0, wait_value_usd=3.0)
        17.0
    """
    return money_usd * (1.0 + aged_share) + own_h * hour_value_usd + wall_h * wait_value_usd


def rank_offers(offers: OfferTable, question: Question, *, one_device: bool = False) -> OfferTable:
    """Rank offers: usable ones first, then those with known values, then by the criterion; the sort is stable."""
    import numpy as np

    compute_totals(offers, question)
    complete = offers.of_offers(lambda one: one.offer.complete, bool)
    possible = complete & offers.of_runs(lambda run: run.device_estimate.memory.fits is True, bool)
    usable = complete & offers.of_runs(lambda run: not run.device_estimate.is_ruled_out, bool)
    first, second = offers.cost_usd, offers.time_s
    if question.sort == "time":
        first, second = second, first
    if question.sort == "co2":
        co2_kg = (one.co2_kg for one in offers)
        first, second = np.array([np.nan if co2 is None else co2.mid for co2 in co2_kg]), offers.cost_usd
    unknown = np.isnan(first) | np.isnan(second)
    keys = (np.nan_to_num(second, nan=np.inf, posinf=np.inf), np.nan_to_num(first, nan=np.inf, posinf=np.inf))
    possible &= ~np.isnan(offers.total_usd)
    _mark_takable(offers, possible & usable, question, one_device=one_device)
    if question.filters.accelerators and not (offers.takable.any() or offers.refused.any()):
        _mark_takable(offers, possible, question, one_device=one_device)
    return offers.reorder(np.lexsort((*keys, unknown, ~usable)))  # the last key decides first


def compute_totals(offers: OfferTable, question: Question) -> None:
    """Add the totals of offers to their columns."""
    offers.total_usd = compute_total_usd(
        money_usd=offers.cost_usd,
        own_h=offers.own_h,
        wall_h=offers.time_s / SECONDS_PER_HOUR,
        hour_value_usd=question.hour_value_usd,
        wait_value_usd=question.wait_value_usd,
        aged_share=offers.aged_shares,
    )


def _mark_takable(offers: OfferTable, known: Mask, question: Question, *, one_device: bool) -> None:
    """Add which offers can be taken, and which the account's quota alone forbids, to their columns.

    What can no longer or not simply be had, or runs no Keras 3, is taken only where its accelerator is named and
    has nothing else.
    """
    import numpy as np

    if one_device and not (question.filters.devices and min(question.filters.devices) > 1):
        known = known & offers.of_offers(lambda one: one.offer.devices <= 1, bool)
    refused = known & offers.of_offers(lambda one: one.quota is not None and one.is_refused, bool)
    had = known & ~refused & ~np.isin(offers.availability, NEVER_TAKEN)
    is_named_only = question.filters.accelerators and not had.any() and not refused.any()
    offers.takable, offers.refused = known if is_named_only else had, refused


class Bounds(NamedTuple):
    """Lower ends, central estimates and upper ends of a column."""

    low: Floats
    mid: Floats
    high: Floats


def compute_time_bounds(offers: OfferTable, rows: Rows) -> Bounds:
    """Return the 80 % intervals of the times of some rows, with the spread of preemptions [s]."""
    import numpy as np

    low, high = np.array([_compute_time_ends(run) for run in offers.runs]).T
    return Bounds(low[offers.run_of[rows]], offers.time_s[rows], high[offers.run_of[rows]])


def _compute_time_ends(run: UnpricedRun) -> tuple[float, float]:
    if run.timeline is None:
        step_time_s, samples = run.device_estimate.step_time_s, run.device_estimate.run.global_batch_size
        if step_time_s is None:
            return math.nan, math.nan
        return step_time_s.low / samples, step_time_s.high / samples
    wall_s, forecast = run.timeline.wall_s, run.preemption_forecast
    return wall_s.low, wall_s.high if forecast is None else max(wall_s.high, forecast.wall_p90_s)


def compute_cost_bounds(offers: OfferTable, rows: Rows) -> Bounds:
    """Return the 80 % intervals of the costs of some rows, whose runs have a known length [USD]."""
    return Bounds(offers.compute_costs(rows, 0), offers.cost_usd[rows], offers.compute_costs(rows, 2))


def find_first(rows: Rows, *keys: Floats | Mask) -> int | None:
    """Return the row with the least first key, of equal ones with the least second; None for no rows.

    All keys are known numbers.
    """
    if not rows.size:
        return None
    for key in keys:
        values = key[rows]
        rows = rows[values == values.min()]
    return int(rows[0])


def find_pareto(rows: Rows, time_s: Floats, cost_usd: Floats) -> tuple[int, ...]:
    """Return the Pareto-optimal rows in time and cost, fastest first; the first of equal ones."""
    front: list[int] = []
    least_usd = math.inf
    order = sorted(zip(time_s[rows].tolist(), cost_usd[rows].tolist(), rows.tolist(), strict=True))
    for _, usd, row in order:
        if usd < least_usd:
            front.append(row)
            least_usd = usd
    return tuple(front)


def find_undominated(offers: OfferTable) -> tuple[int, ...]:
    """Return the offers that can be taken and that no other beats in money, time and the user's own hours.

    An offer is beaten by one that is at least as good in all three and better in one; old prices count with their
    allowance.
    """
    import numpy as np

    money_usd = offers.cost_usd * (1.0 + offers.aged_shares)
    columns = np.stack([money_usd, offers.time_s, offers.own_h], axis=1)
    rows = np.flatnonzero(offers.takable)
    rows = rows[np.lexsort((columns[rows, 2], columns[rows, 1], columns[rows, 0]))]
    front: list[int] = []
    while rows.size:  # the cheapest first: none is beaten by a later one
        front.append(int(rows[0]))
        rows = rows[(columns[rows] < columns[rows[0]]).any(axis=1)]
    return tuple(front)


def recommend(offers: OfferTable, question: Question) -> Recommendation:
    """Return the recommended offers, of those that can be taken and do the whole run in one session."""
    import numpy as np

    time_s, cost_usd = offers.time_s, offers.cost_usd
    able = offers.takable & offers.of_runs(lambda run: run.timeline is None or run.timeline.sessions == 1, bool)
    free, paid = np.flatnonzero(able & offers.is_free), np.flatnonzero(able & ~offers.is_free)
    if offers.is_free.all():
        paid = free
    in_time, in_budget = paid[:0], paid[:0]
    if question.deadline_s is not None:
        in_time = paid[compute_time_bounds(offers, paid).high <= question.deadline_s]
    if question.budget_usd is not None:
        in_budget = paid[compute_cost_bounds(offers, paid).high <= question.budget_usd]
    return Recommendation(
        cheapest=find_first(paid, cost_usd, time_s),
        fastest=find_first(paid, time_s, cost_usd),
        within_deadline=find_first(in_time, cost_usd, time_s),
        within_budget=find_first(in_budget, time_s, cost_usd),
        free=find_first(free, time_s, cost_usd),
        pareto=find_pareto(paid, time_s, cost_usd),
    )

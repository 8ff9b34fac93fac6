"""Recommended offers as positions in an estimate."""

from __future__ import annotations

from ...frozen import Frozen
from ..compare.sensitivity import Sensitivity

__all__ = ["Recommendation"]


class Recommendation(Frozen):
    """Positions in ``Estimate.offers``; None if no offer qualifies or the limit was not given.

    Only complete machines are considered on which the step is known to fit, and which can be held for the whole
    run. Free machines are listed separately, since they are not guaranteed, unless no others were selected.

    Args:
        cheapest, fastest: By the whole run, or by sample if the run's length is unknown.
        within_deadline: Cheapest offer that meets the deadline even at its upper bound.
        within_budget: Fastest offer that stays within the budget even at its upper bound.
        free: Fastest offer that costs nothing.
        pareto: Pareto-optimal offers in time and cost, fastest first.
        sensitivity: Changes that would make another offer the cheapest; None if there are none.
    """

    cheapest: int | None
    fastest: int | None
    within_deadline: int | None
    within_budget: int | None
    free: int | None
    pareto: tuple[int, ...]
    sensitivity: Sensitivity | None = None

"""Which offers to take: positions in an estimate."""

from __future__ import annotations

from ...frozen import Frozen
from ..compare.sensitivity import Sensitivity

__all__ = ["Recommendation"]


class Recommendation(Frozen):
    """Positions in ``Estimate.offers``; None when no offer answers, or when it was not asked.

    Only complete machines are considered in which the step is known to fit, and which can be held for the
    whole run; free ones only when nothing else was asked for: they are named apart, since nobody guarantees
    them.

    Args:
        cheapest, fastest: Of the whole run; of a sample when the run's length is unknown.
        within_deadline: The cheapest that is done in time even at the upper end of its interval.
        within_budget: The fastest that keeps the budget even at the upper end of its interval.
        free: The fastest that costs nothing.
        pareto: Those that no other beats in time and cost at once, fastest first.
        sensitivity: What would change the cheapest; None when nothing could.
    """

    cheapest: int | None
    fastest: int | None
    within_deadline: int | None
    within_budget: int | None
    free: int | None
    pareto: tuple[int, ...]
    sensitivity: Sensitivity | None = None

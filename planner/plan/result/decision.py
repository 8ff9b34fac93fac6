"""Decision: the recommended offer, and the alternatives with their trade-offs."""

from __future__ import annotations

from ...frozen import Frozen

DECISION_ROLES = ("recommended", "free", "cheapest_paid", "in_between", "fastest_paid")


class Decision(Frozen):
    """Positions in ``Estimate.offers``; None if there is no such offer.

    With a deadline or a budget, only offers that keep both even at their upper bounds are considered, unless
    there are none: then ``recommended`` is None and the others are the best of all.

    Args:
        recommended: Recommended offer.
        free: Fastest offer that costs nothing, this machine included.
        cheapest_paid: Cheapest paid offer by the whole run, or by sample if the run's length is unknown.
        fastest_paid: Fastest paid offer by the same measure.
        in_between: Paid offer with the lowest product of time and cost among the Pareto-optimal ones between
            the cheapest and the fastest.
        sentence: Recommendation with its reason.
        spot: Comparison of the recommended machine on spot and on demand, as sentences; empty without both.
        passed_over: Offers that would have been picked if the account's quota allowed them.
    """

    recommended: int | None
    free: int | None
    cheapest_paid: int | None
    in_between: int | None
    fastest_paid: int | None
    sentence: str
    spot: str = ""
    passed_over: tuple[int, ...] = ()

    def roles(self) -> dict[int, tuple[str, ...]]:
        """Return the roles of each offer by its position, the recommended one first."""
        found: dict[int, tuple[str, ...]] = {}
        for role in DECISION_ROLES:
            index = getattr(self, role)
            if index is not None:
                found[index] = (*found.get(index, ()), role)
        return found

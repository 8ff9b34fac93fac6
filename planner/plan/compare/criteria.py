"""Selection of the cheapest and fastest offers, within a deadline or budget, and of the Pareto front.

Everything here is pure arithmetic on candidates; an answer is a candidate's key. Of equals, the first wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

__all__ = [
    "Candidate",
    "SortBy",
    "cheapest",
    "cheapest_within_s",
    "fastest",
    "fastest_within_usd",
    "pareto",
]

SortBy = Literal["cost", "time", "co2"]


class Candidate(NamedTuple):
    """An offer that could be taken.

    Args:
        key: Whatever the caller finds the offer by.
        time_s, cost_usd: Central estimates, of the run or of one sample [s], [USD].
        late_s, dear_usd: Upper ends of the 80 % intervals [s], [USD].
    """

    key: int
    time_s: float
    cost_usd: float
    late_s: float
    dear_usd: float


def cheapest(candidates: Iterable[Candidate]) -> int | None:
    """Return the candidate of least cost; the faster of two that cost the same. None when there is none."""
    best = min(candidates, key=lambda c: (c.cost_usd, c.time_s), default=None)
    return best.key if best else None


def fastest(candidates: Iterable[Candidate]) -> int | None:
    """Return the candidate of least time; the cheaper of two that take the same. None when there is none."""
    best = min(candidates, key=lambda c: (c.time_s, c.cost_usd), default=None)
    return best.key if best else None


def cheapest_within_s(candidates: Iterable[Candidate], deadline_s: float) -> int | None:
    """Return the cheapest candidate that is done by the deadline even at the upper end of its interval.

    Args:
        candidates: To choose from.
        deadline_s: Time from the first step to the last [s].
    """
    return cheapest(c for c in candidates if c.late_s <= deadline_s)


def fastest_within_usd(candidates: Iterable[Candidate], budget_usd: float) -> int | None:
    """Return the fastest candidate that keeps the budget even at the upper end of its interval.

    Args:
        candidates: To choose from.
        budget_usd: Of the whole run [USD].
    """
    return fastest(c for c in candidates if c.dear_usd <= budget_usd)


def pareto(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    """Return the candidates that no other beats in time and cost at once, fastest first.

    A candidate is beaten by one that is at least as good in both; of equals, the first stays.
    """
    front: list[int] = []
    least_usd = float("inf")
    for candidate in sorted(candidates, key=lambda c: (c.time_s, c.cost_usd)):
        if candidate.cost_usd < least_usd:
            front.append(candidate.key)
            least_usd = candidate.cost_usd
    return tuple(front)

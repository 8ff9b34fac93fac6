"""Numbers of epochs or runs at which the best alternative changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..records import Frozen

FARTHEST = 100_000  # largest number of epochs or runs in the search [-]


class Crossover(Frozen):
    """A number of epochs or runs from which another alternative is the cheapest.

    Args:
        at: The first such number [-].
        before, to: Names of the alternatives.
    """

    at: int
    before: str
    to: str

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `turns`."""
        return {"from": self.at, "instead_of": self.before, "cheapest": self.to}


def find_crossovers(cheapest: Callable[[int], str], *, farthest: int = FARTHEST) -> tuple[Crossover, ...]:
    """Find the crossovers between 1 and a largest number.

    The search uses a grid of 12 % steps, then bisection: an alternative that is the cheapest only between two
    neighboring points of the grid is missed.

    Args:
        cheapest: Function that names the cheapest alternative at a number of epochs or runs.
        farthest: Largest number in the search [-].

    Example:
        >>> find_crossovers(lambda n: "free" if n < 38 else "rented")
        (Crossover(at=38, before='free', to='rented'),)
    """
    found = []
    low, name = 1, cheapest(1)
    while low < farthest:
        high = min(farthest, max(low + 1, math.ceil(low * 1.12)))
        after = cheapest(high)
        if after != name:
            at, to = _first_change(cheapest, low, high, name)
            found.append(Crossover(at=at, before=name, to=to))
            low, name = at, to
        else:
            low = high
    return tuple(found)


def _first_change(cheapest: Callable[[int], str], low: int, high: int, name: str) -> tuple[int, str]:
    """Return the number between two at which the name changes, and the new name."""
    while high - low > 1:
        middle = (low + high) // 2
        if cheapest(middle) == name:
            low = middle
        else:
            high = middle
    return high, cheapest(high)

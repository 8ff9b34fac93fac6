"""Values of a report besides the offers: time breakdowns, itemized bills, cost against epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...plain import to_plain

if TYPE_CHECKING:
    from ...predict.breakdown import StepBreakdown
    from ..compare.crossover import Crossover
    from .offer_estimate import OfferEstimate

__all__ = ["CostCurve", "ReportDetails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCurve:
    """Cost of one alternative at numbers of epochs.

    Args:
        name: Name of the alternative in `gpuplan breakeven`.
        instance_type: Instance type of its offer.
        points: Epochs, then lower bound, central value and upper bound of the cost [USD].
    """

    name: str
    instance_type: str
    points: tuple[tuple[int, float, float, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        keys = ("epochs", "usd_low", "usd", "usd_high")
        points = [dict(zip(keys, point, strict=True)) for point in self.points]
        return {"name": self.name, "instance_type": self.instance_type, "points": points}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDetails:
    """The details of an estimate.

    Args:
        steps: Step breakdowns on one device of a few accelerators.
        bills: Positions of the offers with itemized bills.
        curves: Cost against epochs; empty if the run is not given in epochs.
        crossovers: Points at which another alternative becomes the cheapest.
        colab: Points at which paid Colab becomes cheaper or more expensive than another paid alternative.
    """

    steps: tuple[StepBreakdown, ...]
    bills: tuple[int, ...]
    curves: tuple[CostCurve, ...]
    crossovers: tuple[Crossover, ...]
    colab: tuple[Crossover, ...] = ()

    def to_json(self, offers: Sequence[OfferEstimate]) -> dict[str, Any]:
        """Return the member `details` of a plan.

        Args:
            offers: Offers of the estimate, in its order.
        """
        billed = ((index, offers[index].bill) for index in self.bills)
        return {
            "steps": to_plain(self.steps),
            "bills": [
                {"offer": index, "lines": bill.lines_json(detailed=True)}
                for index, bill in billed
                if bill is not None
            ],
            "epochs": [curve.to_json() for curve in self.curves],
            "turns": [crossover.to_json() for crossover in self.crossovers],
            "colab": [crossover.to_json() for crossover in self.colab],
        }

"""A run on a kind of machine, before its price."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .bill import Bill

if TYPE_CHECKING:
    from decimal import Decimal

    from ..result.device_estimate import DeviceEstimate
    from ..select import OfferContext
    from ..spot.preemption import PreemptionForecast
    from .bill import CostBasis, Fees
    from .timeline import Timeline

__all__ = ["UnpricedOffer", "UnpricedRun"]


class UnpricedRun(NamedTuple):
    """A run on a kind of machine, before its price.

    Args:
        projection: The workload on the machine's devices.
        schedule: The run part by part; None when the time of its steps is unknown.
        rental: What is charged for it; None likewise.
        outlook: What interruptions do to the run; None on demand, or when the run's time is unknown.
        charges: Fees of the provider.
    """

    projection: DeviceEstimate
    schedule: Timeline | None
    rental: CostBasis | None
    outlook: PreemptionForecast | None
    charges: Fees

    def bill(self, usd_per_hour: Decimal | None) -> Bill | None:
        """Return the bill at a price; None when the price or the run's time is unknown."""
        if self.rental is None or usd_per_hour is None:
            return None
        return Bill(self.rental, usd_per_hour=usd_per_hour)


class UnpricedOffer(NamedTuple):
    """An offer with the run on its machine, before its bill."""

    selected: OfferContext
    lease: UnpricedRun

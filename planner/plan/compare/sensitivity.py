"""Sensitivity of the cheapest choice: the change at which another machine would win."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...frozen import Frozen
from ..pricing.timeline import TRAINING
from .criteria import Candidate

if TYPE_CHECKING:
    from ..result.offer_estimate import OfferEstimate

__all__ = ["Sensitivity", "compute_sensitivity"]


class Sensitivity(Frozen):
    """Changes after which another machine wins.

    Args:
        runner_up: Position of the cheapest offer of another accelerator, number of them, or provider.
        price_share: By how much the winner's price may rise until the other is cheaper [-].
        step_time_share: By how much its steps may be slower [-].
        certain: Whether the winner is cheaper even at its upper end than the other at its lower end.
    """

    runner_up: int
    price_share: float
    step_time_share: float
    certain: bool


def compute_sensitivity(
    winner: int | None, candidates: Sequence[Candidate], offers: Sequence[OfferEstimate]
) -> Sensitivity | None:
    """Return the changes after which another machine wins; None without a winner, a second machine or a bill.

    Args:
        winner: Position of the cheapest offer.
        candidates: Offers that could be taken; their keys are positions.
        offers: All of them.
    """
    if winner is None:
        return None
    machine = _machine(offers[winner])
    by_cost = sorted(candidates, key=lambda c: (c.cost_usd, c.time_s))
    others = (c for c in by_cost if _machine(offers[c.key]) != machine and offers[c.key].bill is not None)
    rival = next(others, None)
    if rival is None:
        return None
    own, other, schedule = offers[winner].bill, offers[rival.key].bill, offers[winner].schedule
    if own is None or other is None or schedule is None:
        return None
    gap = other.nano[1] - own.nano[1]
    share = schedule.time_s(TRAINING).mid / schedule.total_s.mid
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

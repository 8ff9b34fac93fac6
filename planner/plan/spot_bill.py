"""What interruptions add to the bill of an offer, and whether spot is worth it against on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from ..units import Interval
from .bill import Bill, BillLine, UsdInterval, rental_usd

if TYPE_CHECKING:
    from .result import OfferEstimate
    from .spot_outlook import SpotOutlooks

__all__ = ["compare_with_on_demand", "with_interruptions"]


def with_interruptions(one: OfferEstimate, outlooks: SpotOutlooks) -> OfferEstimate:
    """Return a spot offer with its outlook and what checkpoints and lost work add to its bill; others as they are.

    Args:
        one: The offer, its bill that of an undisturbed run.
        outlooks: Works out what interruptions do.
    """
    train_time_s = one.projection.train_time_s
    if one.offer.purchase != "spot" or train_time_s is None:
        return one
    outlook = outlooks.of(one.offer, train_time_s)
    if outlook is None or one.bill is None or one.offer.usd_per_hour is None:
        return replace(one, spot=outlook)
    lines = (
        _line("checkpoints", train_time_s, outlook.checkpoint_share, one.offer.usd_per_hour),
        _line("rework and restarts", train_time_s, outlook.rework_share, one.offer.usd_per_hour),
    )
    return replace(one, spot=outlook, bill=_with_lines(one.bill, lines))


def _line(item: str, train_time_s: Interval, share: float, usd_per_hour: Decimal) -> BillLine:
    low, mid, high = (
        rental_usd(duration_s=share * time_s, usd_per_hour=usd_per_hour)
        for time_s in (train_time_s.low, train_time_s.mid, train_time_s.high)
    )
    return BillLine(item, UsdInterval(low, mid, high))


def _with_lines(bill: Bill, lines: Iterable[BillLine]) -> Bill:
    total = bill.total
    added = tuple(lines)
    for line in added:
        total = total.plus(line.usd)
    return Bill((*bill.lines, *added), total)


def compare_with_on_demand(offers: Iterable[OfferEstimate]) -> list[OfferEstimate]:
    """Return the offers, each at spot prices told what it saves against the same machine there on demand."""
    kept = list(offers)
    on_demand: dict[tuple[str, str, str], Decimal] = {
        _machine(one): one.bill.total.mid for one in kept if one.offer.purchase == "on_demand" and one.bill
    }
    return [_compared(one, on_demand.get(_machine(one))) for one in kept]


def _machine(one: OfferEstimate) -> tuple[str, str, str]:
    return one.offer.provider, one.offer.instance_type, one.offer.region


def _compared(one: OfferEstimate, on_demand_usd: Decimal | None) -> OfferEstimate:
    if one.spot is None or one.bill is None or not on_demand_usd:
        return one
    saves = 1.0 - float(one.bill.total.mid / on_demand_usd)
    return replace(one, spot=replace(one.spot, loses=saves <= 0.0, saves_share=saves))

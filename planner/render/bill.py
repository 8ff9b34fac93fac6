"""The bill line by line: a table under the estimate on a terminal, TSV of every offer's lines in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .numbers import duration_text, offer_text, short_text
from .output import UNKNOWN, Column, emit_rows

if TYPE_CHECKING:
    from ..plan.bill_line import BillLine
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.result import Estimate
    from ..plan.terms import Currency

__all__ = ["breakdown_text", "emit_breakdown", "money_text"]

_COLUMNS = [
    Column(key=key, header=key)
    for key in (
        "provider", "instance_type", "region", "purchase", "item", "time_s_low", "time_s_mid", "time_s_high",
        "usd_low", "usd_mid", "usd_high", "because",
    )
]  # fmt: skip
ENDS = ("low", "mid", "high")
ITEM_WIDTH, TIME_WIDTH, MONEY_WIDTH = 26, 10, 16
REASON_FROM = 2 + ITEM_WIDTH + TIME_WIDTH + MONEY_WIDTH + 2


def emit_breakdown(estimate: Estimate) -> None:
    """Write every line of every bill to a pipe."""
    emit_rows(_COLUMNS, [row for one in estimate.offers for row in _rows(one)])


def breakdown_text(estimate: Estimate, *, width: int) -> Iterator[str]:
    """Yield the bills of the recommended offers for a terminal, each line with what it rests on."""
    for one in _recommended(estimate):
        name = offer_text(one.offer.provider, one.offer.instance_type)
        yield ""
        yield f"bill of {name}, {one.offer.region}, {one.offer.purchase.replace('_', ' ')}:"
        yield from _lines(one, estimate.terms.currency, width)


def money_text(low: float, high: float) -> str:
    """Return an amount as a range, as one number where both ends look alike; minus signs in front.

    Example:
        >>> money_text(0.52, 0.9), money_text(1.0, 1.0), money_text(-3.0, -2.0)
        ('0.52–0.9', '1.0', '-2.0–-3.0')
    """
    if high < 0:
        first, last = f"-{short_text(-high)}", f"-{short_text(-low)}"
    else:
        first, last = short_text(low), short_text(high)
    return first if first == last else f"{first}–{last}"


def _recommended(estimate: Estimate) -> list[OfferEstimate]:
    """Return the offers that are named under the table, each once."""
    chosen = estimate.recommendation
    named = (chosen.cheapest, chosen.fastest, chosen.within_deadline, chosen.within_budget, chosen.free)
    return [estimate.offers[index] for index in dict.fromkeys(i for i in named if i is not None)]


def _lines(one: OfferEstimate, currency: Currency, width: int) -> Iterator[str]:
    """Yield one bill, a line an item, and its sum."""
    if one.bill is None or one.run_time_s is None:
        yield f"  {UNKNOWN}"
        return
    for line in one.bill.lines:
        time, usd = _time_text(line), _usd(line.usd, currency)
        yield from _wrapped(_cells(line.item, time, usd), line.because, width)
    for item in one.unbilled:
        yield f"{_cells(item, '', UNKNOWN)}  not known of this provider"
    time = duration_text(one.run_time_s.mid)
    total = _usd(one.bill.total, currency)
    yield _cells(f"total, {currency.code}", time, total)


def _cells(item: str, time: str, money: str) -> str:
    """Return the three cells of a line."""
    return f"  {item:<{ITEM_WIDTH}}{time:>{TIME_WIDTH}}{money:>{MONEY_WIDTH}}"


def _wrapped(cells: str, because: str, width: int) -> Iterator[str]:
    """Yield a line with its reason beside it, or below it where the terminal is narrow."""
    room = width - REASON_FROM
    if room >= 40:
        first, *others = textwrap.wrap(because, room) or [""]
        yield f"{cells}  {first}".rstrip()
        yield from (f"{'':{REASON_FROM}}{other}" for other in others)
    else:
        yield cells
        yield from textwrap.wrap(because, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _time_text(line: BillLine) -> str:
    return "" if line.time_s is None else duration_text(line.time_s.mid)


def _usd(usd: Any, currency: Currency) -> str:
    """Return the range of an amount in the user's currency."""
    ends = sorted((float(currency.of_usd(usd.low)), float(currency.of_usd(usd.high))))
    return money_text(*ends)


def _rows(one: OfferEstimate) -> Iterable[dict[str, Any]]:
    """Yield the lines of one bill at full precision."""
    offer = one.offer
    names = {
        "provider": offer.provider, "instance_type": offer.instance_type, "region": offer.region,
        "purchase": offer.purchase,
    }  # fmt: skip
    for line in one.bill.lines if one.bill else ():
        time_s = line.time_s
        yield {
            **names,
            "item": line.item,
            "because": line.because,
            **{
                f"time_s_{end}": None if time_s is None else getattr(time_s, end)
                for end in ("low", "mid", "high")
            },
            **{f"usd_{end}": getattr(line.usd, end) for end in ("low", "mid", "high")},
        }

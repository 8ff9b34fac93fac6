"""Output of an estimate: a table with notes, itemized bills, TSV of every offer, or JSON."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..units import format_duration, format_offer_name, format_short
from .estimate_screen import emit_screen
from .offer_columns import BOUNDS, VALUE_NAMES, build_values
from .output import UNKNOWN, emit_json, emit_text, emit_tsv, format_json, get_terminal_width

if TYPE_CHECKING:
    from ..plan.cost_terms import Currency
    from ..plan.estimate import Estimate
    from ..plan.offer_estimate import OfferEstimate


_OFFER_KEYS = ("provider", "instance_type", "region", "purchase")
_KEYS = (
    *_OFFER_KEYS, "item", "time_s_low", "time_s_mid", "time_s_high", "usd_low", "usd_mid", "usd_high", "because",
)  # fmt: skip
ITEM_WIDTH, TIME_WIDTH, MONEY_WIDTH = 26, 10, 16
REASON_FROM = 2 + ITEM_WIDTH + TIME_WIDTH + MONEY_WIDTH + 2


def emit_breakdown(estimate: Estimate) -> None:
    """Write every item of every bill as TSV, at full precision."""
    emit_tsv(_KEYS, (row for one in estimate.offers for row in _iter_rows(one)))


def _iter_rows(one: OfferEstimate) -> Iterator[dict[str, Any]]:
    for line in one.bill.lines if one.bill else ():
        yield {
            **{key: getattr(one.offer, key) for key in _OFFER_KEYS},
            "item": line.item,
            "because": line.because,
            **{f"time_s_{end}": line.time_s and getattr(line.time_s, end) for end in BOUNDS},
            **{f"usd_{end}": getattr(line.usd, end) for end in BOUNDS},
        }


def iter_breakdown_lines(estimate: Estimate, *, width: int) -> Iterator[str]:
    """Yield the bills of the recommended offers for a terminal, each item with its basis."""
    chosen = estimate.recommendation
    named = (chosen.cheapest, chosen.fastest, chosen.within_deadline, chosen.within_budget, chosen.free)
    for index in dict.fromkeys(index for index in named if index is not None):
        one = estimate.offers[index]
        name = format_offer_name(one.offer.provider, one.offer.instance_type)
        yield ""
        yield f"bill of {name}, {one.offer.region}, {one.offer.purchase.replace('_', ' ')}:"
        yield from _iter_lines(one, estimate.terms.currency, width)


def _iter_lines(one: OfferEstimate, currency: Currency, width: int) -> Iterator[str]:
    """Yield the items and the total of one bill."""
    if one.bill is None or one.run_time_s is None:
        yield f"  {UNKNOWN}"
        return
    for line in one.bill.lines:
        time = "" if line.time_s is None else format_duration(line.time_s.mid)
        cells = _format_cells(line.item, time, _format_usd(line.usd, currency))
        yield from _wrap_line(cells, line.because, width)
    for item in one.unbilled:
        yield f"{_format_cells(item, '', UNKNOWN)}  unknown for this provider"
    time = format_duration(one.run_time_s.mid)
    yield _format_cells(f"total, {currency.code}", time, _format_usd(one.bill.total, currency))


def _format_cells(item: str, time: str, money: str) -> str:
    return f"  {item:<{ITEM_WIDTH}}{time:>{TIME_WIDTH}}{money:>{MONEY_WIDTH}}"


def _wrap_line(cells: str, because: str, width: int) -> Iterator[str]:
    """Yield a line with its basis next to it, or below it on a narrow terminal."""
    room = width - REASON_FROM
    if room >= 40:
        first, *others = textwrap.wrap(because, room) or [""]
        yield f"{cells}  {first}".rstrip()
        yield from (f"{'':{REASON_FROM}}{other}" for other in others)
    else:
        yield cells
        yield from textwrap.wrap(because, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _format_usd(usd: Any, currency: Currency) -> str:
    """Format the range of an amount in the user's currency, or one number if both bounds have the same text."""
    low, high = sorted(float(currency.of_usd(value)) for value in (usd.low, usd.high))
    first, last = format_short(low), format_short(high)
    if high < 0:  # a discount, the smaller amount first
        first, last = f"-{format_short(-high)}", f"-{format_short(-low)}"
    return first if first == last else f"{first}–{last}"


def emit_estimate(
    estimate: Estimate,
    *,
    as_json: bool = False,
    show_all: bool = False,
    explain: bool = False,
    breakdown: bool = False,
) -> None:
    """Write an estimate to standard output.

    Args:
        estimate: Estimate to write.
        as_json: Write one JSON object with every offer.
        show_all: List every offer on a terminal; otherwise at most ten, the picked ones first. A pipe always
            gets every offer.
        explain: Add bottleneck, margins and assumptions on a terminal.
        breakdown: Add itemized bills, each item with its basis.
    """
    if as_json:
        document = estimate.to_json(breakdown=breakdown)
        emit_json(document["schema"], document)
    elif sys.stdout.isatty():
        width = get_terminal_width()
        emit_screen(estimate, show_all=show_all, explain=explain, width=width)
        if breakdown:
            emit_text("\n".join([*iter_breakdown_lines(estimate, width=width), ""]))
    elif breakdown:
        emit_breakdown(estimate)
    else:
        emit_tsv(VALUE_NAMES, (build_values(one.to_json()) for one in estimate.offers))


def format_estimate_json(estimate: Estimate) -> str:
    """Format an estimate as one JSON object, with one offer per line."""
    document = estimate.to_json()
    return format_json(document["schema"], document)

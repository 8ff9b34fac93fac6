"""Output of an estimate: a screen, itemized bills, TSV, JSON, HTML for notebooks, or a data frame."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..plan.estimate import DECISION_ROLES
from ..units import format_duration, format_offer_name, format_short
from .estimate_screen import WIDE, build_cells, emit_screen, list_notes, pick_columns, select_shown_offers
from .offer_columns import BOUNDS, VALUE_NAMES, build_values
from .output import UNKNOWN, Column, emit_json, emit_text, emit_tsv, format_json, get_terminal_width

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..plan.cost_terms import Currency
    from ..plan.estimate import Estimate


_OFFER_KEYS = ("provider", "instance_type", "region", "purchase")
_KEYS = (
    *_OFFER_KEYS, "item", "time_s_low", "time_s_mid", "time_s_high", "usd_low", "usd_mid", "usd_high", "because",
)  # fmt: skip
ITEM_WIDTH, TIME_WIDTH, MONEY_WIDTH = 26, 10, 16
REASON_FROM = 2 + ITEM_WIDTH + TIME_WIDTH + MONEY_WIDTH + 2


def emit_breakdown(estimate: Estimate) -> None:
    """Write every item of every bill as TSV, at full precision."""
    rows = (
        {
            **{key: getattr(one.offer, key) for key in _OFFER_KEYS},
            "item": line.item,
            "because": line.because,
            **{f"time_s_{end}": line.time_s and getattr(line.time_s, end) for end in BOUNDS},
            **{f"usd_{end}": getattr(line.usd, end) for end in BOUNDS},
        }
        for one in estimate.offers
        for line in (one.bill.lines if one.bill else ())
    )
    emit_tsv(_KEYS, rows)


def iter_breakdown_lines(estimate: Estimate, *, width: int) -> Iterator[str]:
    """Yield the bills of the offers of the decision for a terminal, each item with its basis."""
    decision, currency = estimate.decision, estimate.terms.currency
    named = [getattr(decision, role) for role in DECISION_ROLES]
    for index in dict.fromkeys(index for index in (*named, *decision.nearest) if index is not None):
        one = estimate.offers[index]
        name = format_offer_name(one.offer.provider, one.offer.instance_type)
        yield ""
        yield f"bill of {name}, {one.offer.region}, {one.offer.purchase.replace('_', ' ')}:"
        if one.bill is None or one.run_time_s is None:
            yield f"  {UNKNOWN}"
            continue
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
        as_json: Write one JSON object with every offer.
        show_all: List every offer on a terminal; otherwise at most ten, the picked ones first. A pipe always
            gets every offer.
        explain: Add bottleneck, trade-offs and assumptions on a terminal.
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


def build_offer_frame(estimate: Estimate) -> DataFrame:
    """Return a pandas data frame with one row per offer; money is float, unknown is missing.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError(
            "a data frame needs pandas, which is not installed", hint="`pip install 'gpuplan[pandas]'`"
        ) from None
    frame = pd.DataFrame([build_values(one.to_json()) for one in estimate.offers], columns=list(VALUE_NAMES))
    money = [name for name in VALUE_NAMES if "usd" in name]
    return frame.astype(dict.fromkeys(money, "float64"))


def format_estimate_html(estimate: Estimate) -> str:
    """Return the decision, the offers of the screen, and what is to be known of them in one line."""
    shown = select_shown_offers(estimate)
    columns = pick_columns(estimate, WIDE)
    head = _format_row('th scope="col"', columns, [column.header for column in columns])
    cells = build_cells(estimate, shown, [column.key for column in columns])
    body = "".join(_format_row("td", columns, [row[column.key] for column in columns]) for row in cells)
    notes = " ".join(list_notes(estimate, shown))
    return (
        f"<table><caption>{escape(estimate.decision.sentence)}</caption>"
        f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        f"{f'<p>{escape(notes)}</p>' if notes else ''}"
    )


def _format_row(tag: str, columns: Sequence[Column], texts: Sequence[str]) -> str:
    """Return a row; its cells say their alignment, since notebooks align all text to the right by default."""
    end = tag.partition(" ")[0]
    cells = (
        f'<{tag} style="text-align:{column.justify}">{escape(text)}</{end}>'
        for column, text in zip(columns, texts, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"

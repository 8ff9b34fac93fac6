"""Output of an estimate: a table with notes, itemized bills, TSV of every offer, or JSON."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..plan.memory import memory_note
from ..units import format_device, format_duration, format_offer_name, format_short
from .estimate_notes import format_footnotes, format_summary_lines
from .estimate_rows import OFFER_KEYS, build_offer_row
from .estimate_table import (
    add_best_batch_column,
    build_table_columns,
    build_table_rows,
    format_memory,
    format_title,
    select_shown_offers,
)
from .output import (
    UNKNOWN,
    JsonText,
    emit_document,
    emit_rows,
    emit_text,
    emit_tsv,
    format_compact_json,
    format_json,
    get_terminal_width,
)

if TYPE_CHECKING:
    from ..plan.cost_terms import Currency
    from ..plan.estimate import Estimate
    from ..plan.offer_estimate import OfferEstimate


_OFFER_KEYS = ("provider", "instance_type", "region", "purchase")
_KEYS = (
    *_OFFER_KEYS, "item", "time_s_low", "time_s_mid", "time_s_high", "usd_low", "usd_mid", "usd_high", "because",
)  # fmt: skip
ENDS = ("low", "mid", "high")
ITEM_WIDTH, TIME_WIDTH, MONEY_WIDTH = 26, 10, 16
REASON_FROM = 2 + ITEM_WIDTH + TIME_WIDTH + MONEY_WIDTH + 2


def emit_breakdown(estimate: Estimate) -> None:
    """Write every item of every bill as TSV."""
    emit_tsv(_KEYS, (row for one in estimate.offers for row in _iter_rows(one)))


def iter_breakdown_lines(estimate: Estimate, *, width: int) -> Iterator[str]:
    """Yield the bills of the recommended offers for a terminal, each item with its basis."""
    for one in _select_recommended(estimate):
        name = format_offer_name(one.offer.provider, one.offer.instance_type)
        yield ""
        yield f"bill of {name}, {one.offer.region}, {one.offer.purchase.replace('_', ' ')}:"
        yield from _iter_lines(one, estimate.terms.currency, width)


def format_money_range(low: float, high: float) -> str:
    """Format an amount as a range, or as one number if both bounds round to the same text.

    Example:
        >>> format_money_range(0.52, 0.9), format_money_range(1.0, 1.0), format_money_range(-3.0, -2.0)
        ('0.52–0.9', '1.0', '-2.0–-3.0')
    """
    if high < 0:
        first, last = f"-{format_short(-high)}", f"-{format_short(-low)}"
    else:
        first, last = format_short(low), format_short(high)
    return first if first == last else f"{first}–{last}"


def _select_recommended(estimate: Estimate) -> list[OfferEstimate]:
    """Return the offers recommended below the table, without repetition."""
    chosen = estimate.recommendation
    named = (chosen.cheapest, chosen.fastest, chosen.within_deadline, chosen.within_budget, chosen.free)
    return [estimate.offers[index] for index in dict.fromkeys(i for i in named if i is not None)]


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
    total = _format_usd(one.bill.total, currency)
    yield _format_cells(f"total, {currency.code}", time, total)


def _format_cells(item: str, time: str, money: str) -> str:
    """Format the three cells of a line."""
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
    """Format the range of an amount in the user's currency."""
    ends = sorted((float(currency.of_usd(usd.low)), float(currency.of_usd(usd.high))))
    return format_money_range(*ends)


def _iter_rows(one: OfferEstimate) -> Iterable[dict[str, Any]]:
    """Yield the items of one bill at full precision."""
    names = {key: getattr(one.offer, key) for key in _OFFER_KEYS}
    for line in one.bill.lines if one.bill else ():
        time_s = line.time_s
        yield {
            **names,
            "item": line.item,
            "because": line.because,
            **{f"time_s_{end}": None if time_s is None else getattr(time_s, end) for end in ENDS},
            **{f"usd_{end}": getattr(line.usd, end) for end in ENDS},
        }


LINES_BELOW = 6


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
        show_all: List every offer on a terminal; otherwise at most twelve, the picked ones first. A pipe always
            gets every offer.
        explain: Add bottleneck, margins and assumptions on a terminal.
        breakdown: Add itemized bills, each item with its basis.
    """
    if as_json:
        emit_document(_build_document(estimate, breakdown=breakdown))
    elif sys.stdout.isatty():
        width = get_terminal_width()
        _emit_table(estimate, show_all=show_all, explain=explain or show_all, width=width)
        if breakdown:
            emit_text("\n".join([*iter_breakdown_lines(estimate, width=width), ""]))
    elif breakdown:
        emit_breakdown(estimate)
    else:
        emit_tsv(OFFER_KEYS, (build_offer_row(one) for one in estimate.offers))


def format_estimate_json(estimate: Estimate) -> str:
    """Format an estimate as one JSON object, with one offer per line."""
    document = _build_document(estimate, breakdown=False)
    return format_json(document["schema"], document)


def _build_document(estimate: Estimate, *, breakdown: bool) -> dict[str, Any]:
    """Return the document of an estimate with an iterator of its offers as text."""
    return {**estimate.document(), "offers": _iter_offer_texts(estimate.offers, breakdown=breakdown)}


def _iter_offer_texts(offers: Iterable[OfferEstimate], *, breakdown: bool) -> Iterator[JsonText]:
    """Yield offers as JSON; the part that offers of the same devices share is encoded once."""
    known: dict[int, tuple[object, str]] = {}  # by id, with the object, so that the id stays its own
    for one in offers:
        first, shared, last = one.json_parts(breakdown=breakdown)
        if id(shared) not in known:
            known[id(shared)] = shared, format_compact_json(shared)
        text = known[id(shared)][1]
        yield JsonText(f"{format_compact_json(first)[:-1]}, {text[1:-1]}, {format_compact_json(last)[1:]}")


def _emit_table(estimate: Estimate, *, show_all: bool, explain: bool, width: int) -> None:
    """Print decision, title, table and notes: at most six lines of them unless an explanation is wanted."""
    shown, left_out = select_shown_offers(estimate, show_all=show_all)
    columns = build_table_columns(estimate, width)
    if estimate.has_best_batches:
        columns = add_best_batch_column(columns, width)
    bought = () if estimate.budget_epochs is None else (estimate.budget_epochs.sentence,)
    decided = [line for text in (*estimate.decision.lines, *bought) for line in _wrap(text, width)]
    head = [*decided, "", *_wrap_title(format_title(estimate), width)]
    emit_text("\n".join([*head, ""]))
    emit_rows(columns, build_table_rows(estimate, shown))
    memory_lines = [*_format_needs(estimate), *_format_memory_note(estimate), *_format_remedies(estimate)]
    if explain:
        summary, notes = format_summary_lines(estimate), format_footnotes(estimate, shown)
        blocks = [left_out, *memory_lines, *summary, "", *notes]
        lines = [line for block in blocks for line in _wrap(block, width)]
    else:
        notes = format_footnotes(estimate, shown, short=True)
        lines = _fit_lines([[left_out], *([line] for line in memory_lines if line), notes], width)
    emit_text("\n" + "\n".join(lines) + "\n")


def _wrap(text: str, width: int) -> list[str]:
    """Wrap a paragraph at spaces; words are never broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _wrap_title(title: str, width: int) -> list[str]:
    """Wrap a title between its parts; a part that is too long for a line is wrapped at spaces."""
    separator, unbroken = " · ", "\u00a0"
    parts = (part.replace(" ", unbroken) for part in title.split(separator))
    lines = _wrap(f"{unbroken}· ".join(parts), width)
    return [piece for line in lines for piece in _wrap(line.replace(unbroken, " "), width)]


def _fit_lines(paragraphs: Iterable[Sequence[str]], width: int) -> list[str]:
    """Return the lines of the paragraphs that fit below a table; sentences that do not fit are left out."""
    lines: list[str] = []
    for sentences in paragraphs:
        kept: list[str] = []
        for sentence in sentences:
            if len(lines) + len(_wrap(" ".join([*kept, sentence]), width)) <= LINES_BELOW:
                kept.append(sentence)
        lines += _wrap(" ".join(kept), width) if kept else []
    return lines


def _format_needs(estimate: Estimate) -> list[str]:
    """Return what is needed to get the recommended offer, what is not in its time, and the values of hours."""
    decision, row = estimate.decision, estimate.decision.recommended
    is_away = row is not None and estimate.offers[row].offer.provider != "local"
    data = "Plus the download of your data, about 1 min per 5 GB: --assume dataset_gb=5 counts it."
    is_unknown = is_away and estimate.terms.given("dataset_gb") is None
    return [*(f"Needs {text}." for text in decision.needs), *([data] if is_unknown else []), decision.values]


def _format_memory_note(estimate: Estimate) -> list[str]:
    """Return the memory note of the recommended offer; empty where the step fits as it is."""
    index = estimate.decision.recommended
    if index is None:
        return []
    one = estimate.offers[index]
    note = memory_note(one.device_estimate.memory, ())
    return [f"on {format_device(one.offer.accelerator, one.offer.devices)}, {note}"] if note else []


def _format_remedies(estimate: Estimate) -> list[str]:
    """Return ways to fit the step on devices that are too small for it: the first that one would be enough for."""
    best = (estimate.offers[index] for index in estimate.best_per_devices())
    too_small = [one for one in best if one.device_estimate.memory.fits is False]
    if not too_small:
        return []
    helped = (one for one in too_small if any(way.fits for way in one.device_estimate.remedies))
    small = next(helped, too_small[0])
    if not small.device_estimate.remedies:
        return []
    device = format_device(small.offer.accelerator, small.offer.devices)
    ways = " · ".join(
        f"{one.remedy}{'' if one.fits else ', not enough by itself'}" for one in small.device_estimate.remedies
    )
    return [f"to fit on {device} ({format_memory(small)}): {ways}"]

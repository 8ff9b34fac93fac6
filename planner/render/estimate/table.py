"""Table of an estimate: its offers, columns and cells, and the same as HTML for notebooks.

All text in HTML is escaped; it has no scripts or style sheets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING

from ...plan.cost_terms import USD
from ...units import GIB, MS_PER_S
from ..numbers import (
    format_count,
    format_device,
    format_duration,
    format_offer_name,
    format_range,
    format_short,
    format_usd,
)
from ..output import UNKNOWN, Column
from .notes import format_footnotes, format_summary_lines, format_usd_per_million
from .phases import format_phases

if TYPE_CHECKING:
    from ...plan.cost_terms import Currency
    from ...plan.pricing.bill import Bill
    from ...plan.result.best_batch import BestBatch
    from ...plan.result.estimate import Estimate
    from ...plan.result.offer_estimate import OfferEstimate

__all__ = [
    "add_best_batch_column", "build_table_columns", "build_table_row", "format_estimate_html", "format_memory",
    "format_title", "select_shown_offers",
]  # fmt: skip

ROWS_SHOWN = 25
STEP_COLUMN_FROM_WIDTH = 100
REASON_COLUMNS_FROM_WIDTH = 120
ALL_COLUMNS_FROM_WIDTH = 150


def select_shown_offers(estimate: Estimate, *, show_all: bool) -> tuple[list[OfferEstimate], str]:
    """Return the offers for a table, and a sentence on the omitted ones."""
    count = len(estimate.offers)
    if show_all:
        return list(estimate.offers), f"Shown: all {count} offers."
    best = [estimate.offers[index] for index in estimate.best_per_devices()]
    usable = [one for one in best if not one.device_estimate.is_ruled_out and one.device_estimate.step_time_s]
    shown = (usable or best)[:ROWS_SHOWN]
    too_small = sum(one.device_estimate.memory.fits is False for one in best)
    unknown = sum(one.device_estimate.step_time_s is None for one in best)
    foreign = sum(one.device_estimate.runs is False for one in best)
    small = f"; {too_small} too small for this batch size" if too_small else ""
    silent = f"; {unknown} without a known time" if unknown else ""
    silent += f"; {foreign} not supported by Keras 3" if foreign else ""
    return shown, (
        f"Shown: the best offer of {len(shown)} of {len(best)} kinds and numbers of devices{small}{silent}; "
        f"--all shows all {count} offers."
    )


def build_table_columns(estimate: Estimate, width: int) -> list[Column]:
    """Return the columns that fit a terminal of a given width [characters].

    Time and cost of the run if its length is known; otherwise, and for inference, samples per second and cost
    per million samples.
    """
    money = "$" if estimate.terms.currency.code == USD.code else estimate.terms.currency.code
    columns = [
        Column(key="device", header="accelerator", format=_build_clipper(18)),
        Column(key="offer", header="offer", format=_build_clipper(_max_offer_length(width))),
        Column(key="region", header="region", format=_build_clipper(15)),
        Column(key="price", header="$/h", justify="right"),
    ]
    is_known, is_served = estimate.workload.steps is not None, estimate.has_serving
    if width >= STEP_COLUMN_FROM_WIDTH:
        step = Column(key="step", header="step ms", justify="right")
        columns.append(Column(key="latency", header="one ms", justify="right") if is_served else step)
    if is_served or not is_known:
        columns.append(Column(key="rate", header="per s", justify="right"))
        columns.append(Column(key="per_million", header=f"{money} a million", justify="right"))
    if is_known and (width >= ALL_COLUMNS_FROM_WIDTH or not is_served):
        columns.append(Column(key="time", header="run", justify="right"))
        if width >= ALL_COLUMNS_FROM_WIDTH and not is_served:
            columns.append(Column(key="between", header="80 % interval", justify="right"))
        columns.append(Column(key="cost", header=f"run {money}", justify="right"))
    if width >= REASON_COLUMNS_FROM_WIDTH:
        columns += [Column(key="limiter", header="limit"), Column(key="basis", header="basis")]
    if width >= ALL_COLUMNS_FROM_WIDTH and not is_served:
        columns.append(Column(key="memory", header="memory", justify="right"))
    return columns


def add_best_batch_column(columns: list[Column], width: int) -> list[Column]:
    """Add the column of the best batch size, replacing dispensable columns on a narrow terminal."""
    spared = {"step", "limiter"} if width < REASON_COLUMNS_FROM_WIDTH else {"limiter"}
    kept = [column for column in columns if column.key not in spared]
    return [*kept, Column(key="best_batch", header="best batch", justify="right")]


def _format_best_batch(best: BestBatch | None, currency: Currency) -> str | None:
    """Format the best batch size that fits, with time and cost of the run."""
    if best is None:
        return None
    run = f": {format_duration(best.run_time_s.mid)}" if best.run_time_s else ""
    usd = (
        ""
        if best.cost_usd is None
        else f", {format_usd(float(currency.of_usd(Decimal(best.cost_usd['mid']))))}"
    )
    return f"{best.batch_size}{run}{usd}"


def _max_offer_length(width: int) -> int:
    """Return the maximum length of an offer's name for a terminal width [characters]."""
    if width < STEP_COLUMN_FROM_WIDTH:
        return 21
    return 25 if width < REASON_COLUMNS_FROM_WIDTH else 34


def build_table_row(one: OfferEstimate, currency: Currency = USD) -> dict[str, str | None]:
    """Format an offer's cells; None for unknown values."""
    offer, device_estimate = one.offer, one.device_estimate
    step_time_s, run_time_s = device_estimate.step_time_s, one.run_time_s
    cells: dict[str, str | None] = {
        "device": format_device(offer.accelerator, offer.devices),
        "offer": format_offer_name(offer.provider, offer.instance_type, hosts=offer.hosts),
        "region": offer.region,
        "price": _format_price(one),
        "step": None,
        "time": format_duration(run_time_s.mid) if run_time_s else None,
        "between": f"{format_duration(run_time_s.low)} – {format_duration(run_time_s.high)}"
        if run_time_s
        else None,
        "memory": format_memory(one),
        "cost": _format_cost(one.bill, currency),
        "latency": None,
        "rate": None,
        "per_million": format_usd_per_million(one, currency),
        "limiter": getattr(device_estimate.step_time, "limiter", None),
        "basis": getattr(device_estimate.step_time, "basis", None),
        "best_batch": _format_best_batch(one.best_batch, currency),
    }
    if step_time_s is not None:
        cells["step"] = format_range(step_time_s.low * MS_PER_S, step_time_s.high * MS_PER_S)
    if one.samples_per_s is not None:
        cells["rate"] = format_range(one.samples_per_s.low, one.samples_per_s.high)
    if one.serving is not None and one.serving.latency_s is not None:
        latency_s = one.serving.latency_s
        cells["latency"] = format_range(latency_s.low * MS_PER_S, latency_s.high * MS_PER_S)
    if device_estimate.runs is False:
        cells |= dict.fromkeys(("time", "rate"), "no Keras 3")
    if device_estimate.memory.fits is False:
        largest = device_estimate.memory.largest_batch_size
        cells |= dict.fromkeys(("time", "rate"), "too big") | {"between": None}
        cells |= dict.fromkeys(("cost", "per_million"), f"batch ≤ {largest}" if largest else "any batch")
    return cells


def _format_cost(bill: Bill | None, currency: Currency) -> str | None:
    """Format the range of a bill's total in the user's currency."""
    if bill is None:
        return None
    low, high = float(currency.of_usd(bill.total.low)), float(currency.of_usd(bill.total.high))
    return format_range(low, high) if high > 0 else format_usd(0.0)


def format_memory(one: OfferEstimate) -> str | None:
    """Format the memory used by a step out of that available."""
    memory = one.device_estimate.memory
    if memory.needed_bytes is None or not memory.available_bytes:
        return None
    return f"{format_short(memory.needed_bytes / GIB)} of {format_short(memory.available_bytes / GIB)} GiB"


def _format_price(one: OfferEstimate) -> str | None:
    """Format the hourly price; `s` marks spot, `~` an estimated price."""
    if one.offer.usd_per_hour is None:
        return None
    derived = "~" if one.offer.estimated else ""
    spot = "s" if one.offer.purchase == "spot" else ""
    return f"{derived}{format_usd(float(one.offer.usd_per_hour))}{spot}"


def format_title(estimate: Estimate) -> str:
    """Describe the workload in one line."""
    workload = estimate.workload
    parts = [
        workload.model,
        f"batch {workload.batch_size}",
        workload.precision,
        f"{format_count(workload.parameters)} parameters",
        f"{format_count(workload.flops_per_step, 'FLOP')} a step",
    ]
    if phases := format_phases(estimate.phases_json()):
        parts.append(phases)
    elif workload.steps is None:
        parts.append("run length unknown")
    elif workload.samples is None or workload.epochs is None:
        parts.append(f"{workload.steps:,} steps")
    elif workload.mode == "infer" and workload.epochs == 1:
        parts.append(f"{workload.samples:,} predictions")
    else:
        parts.append(f"{workload.samples:,} samples × {workload.epochs} epochs")
    return " · ".join(parts)


def _build_clipper(length: int) -> Callable[[str], str]:
    """Build a function that shortens text in its middle, where names differ least."""

    def clip(text: str) -> str:
        if len(text) <= length:
            return text
        head = (length - 1) * 2 // 3
        return f"{text[:head]}…{text[head + 1 - length :]}"

    return clip


ALL_COLUMNS_WIDTH = 200


def format_estimate_html(estimate: Estimate) -> str:
    """Return title, table of the best offers, recommendations and notes."""
    shown, left_out = select_shown_offers(estimate, show_all=False)
    currency = estimate.terms.currency
    columns = build_table_columns(estimate, ALL_COLUMNS_WIDTH)
    notes = [*format_summary_lines(estimate), left_out, *format_footnotes(estimate, shown)]
    body = _format_body(columns, shown, currency)
    return (
        f"<table><caption>{escape(format_title(estimate))}</caption>{_format_head(columns)}{body}"
        f"</table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"
    )


def _format_head(columns: Sequence[Column]) -> str:
    """Return the header row, with column scopes for screen readers."""
    cells = (f'<th scope="col"{_format_alignment(column)}>{escape(column.header)}</th>' for column in columns)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _format_alignment(column: Column) -> str:
    """Return the alignment of a cell; notebooks align all text to the right by default."""
    return f' style="text-align:{column.justify}"'


def _format_body(columns: Sequence[Column], shown: Sequence[OfferEstimate], currency: Currency) -> str:
    """Return the table body."""
    rows = (build_table_row(one, currency) for one in shown)
    lines = (
        "".join(f"<td{_format_alignment(c)}>{escape(row[c.key] or UNKNOWN)}</td>" for c in columns)
        for row in rows
    )
    return f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody>"

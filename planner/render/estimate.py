"""An estimate as a table with what it rests on, or as TSV, JSON or HTML. Nothing is computed here."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..plan.terms import USD
from ..units import GIB, MS_PER_S
from .bill import breakdown_text, emit_breakdown
from .estimate_tsv import TSV_COLUMNS, tsv_row
from .numbers import count_text, device_text, duration_text, offer_text, range_text, short_text, usd_text
from .offer_text import OfferTexts
from .output import Column, JsonText, emit_json, emit_rows, json_text
from .summary import million_text, summary_lines
from .trust import trust_lines

if TYPE_CHECKING:
    from ..plan.best_batch import BestBatch
    from ..plan.bill import Bill
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.result import Estimate
    from ..plan.terms import Currency

__all__ = [
    "emit_estimate", "estimate_json", "shown_offers", "table_columns", "table_row",
    "title_text",
]  # fmt: skip

ROWS_SHOWN = 25
STEP_COLUMN_FROM_WIDTH = 100
REASON_COLUMNS_FROM_WIDTH = 120
ALL_COLUMNS_FROM_WIDTH = 150
FALLBACK_SIZE = (80, 24)


def emit_estimate(
    estimate: Estimate, *, as_json: bool = False, show_all: bool = False, breakdown: bool = False
) -> None:
    """Write an estimate to standard output.

    Args:
        estimate: What to show.
        as_json: One object, every offer.
        show_all: On a terminal, every offer; otherwise the best of each kind and number of devices. A pipe
            always gets every offer.
        breakdown: The bills line by line, each line with what it rests on.
    """
    if as_json:
        document = _document(estimate, breakdown=breakdown)
        emit_json(document.pop("schema"), document)
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size(FALLBACK_SIZE).columns
        _emit_table(estimate, show_all=show_all, width=width)
        if breakdown:
            sys.stdout.write("\n".join([*breakdown_text(estimate, width=width), ""]))
    elif breakdown:
        emit_breakdown(estimate)
    else:
        emit_rows(TSV_COLUMNS, [tsv_row(one) for one in estimate.offers])


def estimate_json(estimate: Estimate) -> str:
    """Return an estimate as the text of one JSON object, one offer a line."""
    document = _document(estimate)
    return json_text(document.pop("schema"), document)


def _document(estimate: Estimate, *, breakdown: bool = False) -> dict[str, Any]:
    """Return the document of an estimate, its offers as text where no bill is wanted in detail."""
    document = estimate.document(breakdown=breakdown)
    if not breakdown:
        text = OfferTexts().of
        document["offers"] = (JsonText(text(one)) for one in estimate.offers)
    return document


def _emit_table(estimate: Estimate, *, show_all: bool, width: int) -> None:
    """Print title, table, what was left out, what to take, and what the numbers rest on."""
    shown, left_out = shown_offers(estimate, show_all=show_all)
    currency = estimate.terms.currency
    rows = [table_row(one, currency) for one in shown]
    columns = table_columns(estimate, width)
    if any(one.best_batch for one in estimate.offers):
        columns = with_best_batch_column(columns, width)
    emit_rows(columns, rows, title=title_text(estimate))
    blocks = [left_out, *_remedy_lines(estimate), *summary_lines(estimate), "", *trust_lines(estimate, shown)]
    lines = [line for block in blocks for line in (textwrap.wrap(block, width) or [""])]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def shown_offers(estimate: Estimate, *, show_all: bool) -> tuple[list[OfferEstimate], str]:
    """Return the offers for a table, and a sentence on the others."""
    everything = list(estimate.offers)
    if show_all:
        return everything, f"Shown: all {len(everything)} offers."
    best = [estimate.offers[index] for index in estimate.best_per_devices()]
    usable = [one for one in best if not one.projection.is_ruled_out and one.projection.step_time_s]
    shown = (usable or best)[:ROWS_SHOWN]
    too_small = sum(one.projection.memory.fits is False for one in best)
    unknown = sum(one.projection.step_time_s is None for one in best)
    foreign = sum(one.projection.runs is False for one in best)
    small = f"; {too_small} too small for this batch size" if too_small else ""
    silent = f"; {unknown} without a known time" if unknown else ""
    silent += f"; {foreign} that Keras 3 does not run on" if foreign else ""
    return shown, (
        f"Shown: the best offer of {len(shown)} of {len(best)} kinds and numbers of devices{small}{silent}; "
        f"--all shows all {len(everything)} offers."
    )


def _remedy_lines(estimate: Estimate) -> list[str]:
    """Return what would make the step fit on the first device that is too small for it, all ways."""
    best: Sequence[OfferEstimate] = [estimate.offers[index] for index in estimate.best_per_devices()]
    small = next((one for one in best if one.projection.memory.fits is False), None)
    if small is None or not small.projection.remedies:
        return []
    device = device_text(small.offer.accelerator, small.offer.devices)
    ways = " · ".join(
        f"{one.remedy}{'' if one.fits else ', not enough by itself'}" for one in small.projection.remedies
    )
    return [f"to fit on {device} ({_memory_text(small)}): {ways}"]


def table_columns(estimate: Estimate, width: int) -> list[Column]:
    """Return the columns that fit a terminal of some width [characters].

    The run's time and cost where its length is known; else, and for predictions, how many samples a second and
    what a million of them cost.
    """
    money = "$" if estimate.terms.currency.code == USD.code else estimate.terms.currency.code
    columns = [
        Column(key="device", header="accelerator", format=_clip(18)),
        Column(key="offer", header="offer", format=_clip(_offer_length(width))),
        Column(key="region", header="region", format=_clip(15)),
        Column(key="price", header="$/h", justify="right"),
    ]
    is_known, is_served = estimate.workload.steps is not None, any(one.serving for one in estimate.offers)
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


def with_best_batch_column(columns: list[Column], width: int) -> list[Column]:
    """Return the columns with that of the best batch in place of what a narrow terminal can spare."""
    spared = {"step", "limiter"} if width < REASON_COLUMNS_FROM_WIDTH else {"limiter"}
    kept = [column for column in columns if column.key not in spared]
    return [*kept, Column(key="best_batch", header="best batch", justify="right")]


def _best_batch_text(best: BestBatch | None, currency: Currency) -> str | None:
    """Return the largest batch that fits, with the run and its cost there."""
    if best is None:
        return None
    run = f": {duration_text(best.run_time_s.mid)}" if best.run_time_s else ""
    usd = (
        ""
        if best.cost_usd is None
        else f", {usd_text(float(currency.of_usd(Decimal(best.cost_usd['mid']))))}"
    )
    return f"{best.batch_size}{run}{usd}"


def _offer_length(width: int) -> int:
    """Return how much of an offer's name a terminal has room for [characters]."""
    if width < STEP_COLUMN_FROM_WIDTH:
        return 21
    return 25 if width < REASON_COLUMNS_FROM_WIDTH else 34


def table_row(one: OfferEstimate, currency: Currency = USD) -> dict[str, str | None]:
    """Return an offer's cells: text for people, None where nothing is known."""
    offer, projection = one.offer, one.projection
    step_time_s, run_time_s = projection.step_time_s, one.run_time_s
    cells: dict[str, str | None] = {
        "device": device_text(offer.accelerator, offer.devices),
        "offer": offer_text(offer.provider, offer.instance_type, hosts=offer.hosts),
        "region": offer.region,
        "price": _price_text(one),
        "step": None,
        "time": duration_text(run_time_s.mid) if run_time_s else None,
        "between": f"{duration_text(run_time_s.low)} – {duration_text(run_time_s.high)}"
        if run_time_s
        else None,
        "memory": _memory_text(one),
        "cost": _cost_text(one.bill, currency),
        "latency": None,
        "rate": None,
        "per_million": million_text(one, currency),
        "limiter": getattr(projection.step_time, "limiter", None),
        "basis": getattr(projection.step_time, "basis", None),
        "best_batch": _best_batch_text(one.best_batch, currency),
    }
    if step_time_s is not None:
        cells["step"] = range_text(step_time_s.low * MS_PER_S, step_time_s.high * MS_PER_S)
    if one.samples_per_s is not None:
        cells["rate"] = range_text(one.samples_per_s.low, one.samples_per_s.high)
    if one.serving is not None and one.serving.latency_s is not None:
        latency_s = one.serving.latency_s
        cells["latency"] = range_text(latency_s.low * MS_PER_S, latency_s.high * MS_PER_S)
    if projection.runs is False:
        cells |= dict.fromkeys(("time", "rate"), "no Keras 3")
    if projection.memory.fits is False:
        largest = projection.memory.largest_batch_size
        cells |= dict.fromkeys(("time", "rate"), "too big") | {"between": None}
        cells |= dict.fromkeys(("cost", "per_million"), f"batch ≤ {largest}" if largest else "any batch")
    return cells


def _cost_text(bill: Bill | None, currency: Currency) -> str | None:
    """Return the range of a bill's total in the user's currency."""
    if bill is None:
        return None
    low, high = float(currency.of_usd(bill.total.low)), float(currency.of_usd(bill.total.high))
    return range_text(low, high) if high > 0 else usd_text(0.0)


def _memory_text(one: OfferEstimate) -> str | None:
    """Return what a step needs of a device's memory."""
    memory = one.projection.memory
    if memory.needed_bytes is None or not memory.available_bytes:
        return None
    return f"{short_text(memory.needed_bytes / GIB)} of {short_text(memory.available_bytes / GIB)} GiB"


def _price_text(one: OfferEstimate) -> str | None:
    """Return the hourly price with its kind: `s` is spot, `~` derived and not read."""
    if one.offer.usd_per_hour is None:
        return None
    derived = "~" if one.offer.estimated else ""
    spot = "s" if one.offer.purchase == "spot" else ""
    return f"{derived}{usd_text(float(one.offer.usd_per_hour))}{spot}"


def title_text(estimate: Estimate) -> str:
    """Return the workload in one line."""
    workload = estimate.workload
    parts = [
        workload.model,
        f"batch {workload.batch_size}",
        workload.precision,
        f"{count_text(workload.parameters)} parameters",
        f"{count_text(workload.flops_per_step, 'FLOP')} a step",
    ]
    if workload.steps is None:
        parts.append("length of the run unknown")
    elif workload.samples is None or workload.epochs is None:
        parts.append(f"{workload.steps:,} steps")
    elif workload.mode == "infer" and workload.epochs == 1:
        parts.append(f"{workload.samples:,} predictions")
    else:
        parts.append(f"{workload.samples:,} samples × {workload.epochs} epochs")
    return " · ".join(parts)


def _clip(length: int) -> Callable[[str], str]:
    """Return a function that shortens text in its middle, where names differ least."""

    def clip(text: str) -> str:
        if len(text) <= length:
            return text
        head = (length - 1) * 2 // 3
        return f"{text[:head]}…{text[head + 1 - length :]}"

    return clip

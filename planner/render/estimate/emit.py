"""Output of an estimate: a table with notes on a terminal, TSV of every offer in a pipe, or JSON."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...numbers import format_device
from ..output import Column, JsonText, emit_json, emit_rows, format_compact_json, format_json
from .bill import emit_breakdown, iter_breakdown_lines
from .notes import format_footnotes, format_short_footnotes, format_summary_lines
from .table import (
    add_best_batch_column,
    build_table_columns,
    build_table_rows,
    format_memory,
    format_title,
    select_shown_offers,
)

if TYPE_CHECKING:
    from ...plan.result.best_batch import BestBatch
    from ...plan.result.estimate import Estimate
    from ...plan.result.offer_estimate import OfferEstimate
    from ...units import Interval

__all__ = ["emit_estimate", "format_estimate_json"]

FALLBACK_SIZE = (80, 24)
LINES_BELOW = 6
BOUNDS = ("low", "mid", "high")
TSV_COLUMNS = [
    Column(key=key, header=key)
    for key in (
        "provider", "instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour",
        "price_as_of", "estimated", "step_time_s_low", "step_time_s_mid", "step_time_s_high",
        "train_time_s_low", "train_time_s_mid", "train_time_s_high", "run_time_s_low", "run_time_s_mid",
        "run_time_s_high", "cost_usd_low", "cost_usd_mid",
        "cost_usd_high", "usd_per_1000_steps", "memory_bytes", "memory_fits", "largest_batch_size",
        "basis", "limiter", "status", "memory_verdict", "memory_remedies", "best_batch_size",
        "best_batch_step_time_s_low", "best_batch_step_time_s_mid", "best_batch_step_time_s_high",
        "best_batch_run_time_s_low", "best_batch_run_time_s_mid", "best_batch_run_time_s_high",
        "best_batch_cost_usd_low", "best_batch_cost_usd_mid", "best_batch_cost_usd_high", "best_batch_speedup",
        "samples_per_s_low", "samples_per_s_mid", "samples_per_s_high", "usd_per_million_samples",
        "latency_s_low", "latency_s_mid", "latency_s_high",
    )
]  # fmt: skip


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
        document = _build_document(estimate, breakdown=breakdown)
        emit_json(document.pop("schema"), document)
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size(FALLBACK_SIZE).columns
        _emit_table(estimate, show_all=show_all, explain=explain or show_all, width=width)
        if breakdown:
            sys.stdout.write("\n".join([*iter_breakdown_lines(estimate, width=width), ""]))
    elif breakdown:
        emit_breakdown(estimate)
    else:
        emit_rows(TSV_COLUMNS, (_build_tsv_row(one) for one in estimate.offers))


def format_estimate_json(estimate: Estimate) -> str:
    """Format an estimate as one JSON object, with one offer per line."""
    document = _build_document(estimate, breakdown=False)
    return format_json(document.pop("schema"), document)


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
    head = [*_wrap(estimate.decision.sentence, width), "", *_wrap_title(format_title(estimate), width)]
    sys.stdout.write("\n".join([*head, ""]))
    emit_rows(columns, build_table_rows(estimate, shown))
    remedies = _format_remedies(estimate)
    if explain:
        summary, notes = format_summary_lines(estimate), format_footnotes(estimate, shown)
        blocks = [left_out, *remedies, *summary, "", *notes]
        lines = [line for block in blocks for line in _wrap(block, width)]
    else:
        lines = _fit_lines([left_out, *remedies, *format_short_footnotes(estimate, shown)], width)
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _wrap(text: str, width: int) -> list[str]:
    """Wrap a paragraph at spaces; words are never broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _wrap_title(title: str, width: int) -> list[str]:
    """Wrap a title between its parts."""
    separator, unbroken = " · ", "\u00a0"
    parts = (part.replace(" ", unbroken) for part in title.split(separator))
    return [line.replace(unbroken, " ") for line in _wrap(f"{unbroken}· ".join(parts), width)]


def _fit_lines(blocks: Iterable[str], width: int) -> list[str]:
    """Return the lines of the first paragraphs that fit below a table, whole paragraphs only."""
    lines: list[str] = []
    for block in blocks:
        wrapped = _wrap(block, width)
        if len(lines) + len(wrapped) <= LINES_BELOW:
            lines += wrapped
    return lines


def _format_remedies(estimate: Estimate) -> list[str]:
    """Return ways to fit the step on the first device that is too small for it."""
    best: Sequence[OfferEstimate] = [estimate.offers[index] for index in estimate.best_per_devices()]
    small = next((one for one in best if one.device_estimate.memory.fits is False), None)
    if small is None or not small.device_estimate.remedies:
        return []
    device = format_device(small.offer.accelerator, small.offer.devices)
    ways = " · ".join(
        f"{one.remedy}{'' if one.fits else ', not enough by itself'}"
        for one in small.device_estimate.remedies
    )
    return [f"to fit on {device} ({format_memory(small)}): {ways}"]


def _build_tsv_row(one: OfferEstimate) -> dict[str, Any]:
    """Return an offer's numbers at full precision, one per column."""
    offer, device_estimate = one.offer, one.device_estimate
    cost_usd = one.bill.total_json() if one.bill else dict.fromkeys(BOUNDS)
    return {
        **offer.identity,
        "usd_per_hour": offer.usd_per_hour,
        "price_as_of": offer.price_as_of,
        "estimated": offer.estimated,
        **_build_interval_cells("step_time_s", device_estimate.step_time_s),
        **_build_interval_cells("train_time_s", device_estimate.train_time_s),
        **_build_interval_cells("run_time_s", one.run_time_s),
        **{f"cost_usd_{bound}": usd for bound, usd in cost_usd.items()},
        "usd_per_1000_steps": one.usd_per_1000_steps,
        "memory_bytes": device_estimate.memory.needed_bytes,
        "memory_fits": device_estimate.memory.fits,
        "largest_batch_size": device_estimate.memory.largest_batch_size,
        "basis": getattr(device_estimate.step_time, "basis", None),
        "limiter": getattr(device_estimate.step_time, "limiter", None),
        "status": offer.status,
        "memory_verdict": device_estimate.memory.verdict,
        "memory_remedies": "; ".join(one.remedy for one in device_estimate.remedies) or None,
        **_build_best_batch_cells(one.best_batch),
        **_build_interval_cells("samples_per_s", one.samples_per_s),
        "usd_per_million_samples": one.usd_per_million_samples,
        **_build_interval_cells("latency_s", None if one.serving is None else one.serving.latency_s),
    }


def _build_best_batch_cells(best: BestBatch | None) -> dict[str, Any]:
    """Return the cells of the best batch size; empty if there is none."""
    if best is None:
        return {}
    usd = best.cost_usd or {}
    return {
        "best_batch_size": best.batch_size,
        **_build_interval_cells("best_batch_step_time_s", best.step_time_s),
        **_build_interval_cells("best_batch_run_time_s", best.run_time_s),
        **{f"best_batch_cost_usd_{bound}": usd.get(bound) for bound in BOUNDS},
        "best_batch_speedup": best.speedup,
    }


def _build_interval_cells(name: str, interval: Interval | None) -> dict[str, float | None]:
    """Return the bounds and the center of an interval under prefixed names."""
    if interval is None:
        return {f"{name}_{bound}": None for bound in BOUNDS}
    return {f"{name}_low": interval.low, f"{name}_mid": interval.mid, f"{name}_high": interval.high}

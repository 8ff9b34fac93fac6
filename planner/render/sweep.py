"""Output of a sweep: the best points, or every point in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..numbers import format_device, format_duration, format_offer_name, format_range, format_usd
from .estimate.notes import format_age_line
from .output import Column, emit_document, emit_rows, emit_tsv

if TYPE_CHECKING:
    from ..plan.compare.sweep import SweepPoint, SweepResult
    from ..plan.cost_terms import Currency

_COLUMNS = [
    Column(key="batch", header="batch", justify="right"),
    Column(key="precision", header="precision"),
    Column(key="device", header="accelerator"),
    Column(key="offer", header="offer"),
    Column(key="region", header="region", dispensable=1),
    Column(key="purchase", header="buy"),
    Column(key="time", header="run", justify="right"),
    Column(key="cost", header="cost", justify="right"),
]
_TSV = (
    "batch_size", "global_batch_size", "precision", "provider", "instance_type", "accelerator", "devices",
    "region", "purchase", "run_time_s", "cost_usd", "memory_bytes", "basis", "limiter", "best",
)  # fmt: skip


def emit_sweep(result: SweepResult, *, as_json: bool) -> None:
    """Write a sweep to standard output: JSON, the best points on a terminal, or every point as TSV."""
    if as_json:
        emit_document(result.to_json())
    elif sys.stdout.isatty():
        currency = result.terms.currency
        title = f"{result.model}: {len(result.best)} best of {len(result.points)} points, fastest first"
        emit_rows(_COLUMNS, [_build_row(point, currency) for point in result.best], title=title)
        lines = [f"omitted: batch {size}, {precision}: {reason}" for size, precision, reason in result.failed]
        age = format_age_line(point.offer.offer for point in result.best)
        more = "A larger global batch changes the optimization per epoch. A pipe and --json list every point."
        sys.stdout.write("\n" + "\n".join([*lines, more, *([age] if age else [])]) + "\n")
    else:
        emit_tsv(_TSV, [_build_tsv_row(point) for point in result.points])


def _build_row(point: SweepPoint, currency: Currency) -> dict[str, Any]:
    """Format a point for the table."""
    offer, bill = point.offer.offer, point.offer.bill
    ends = () if bill is None else (bill.total.low, bill.total.high)
    low, high = (float(currency.of_usd(usd)) for usd in ends) if ends else (0.0, 0.0)
    return {
        "batch": f"{point.batch_size:,}",
        "precision": point.precision,
        "device": format_device(offer.accelerator, offer.devices),
        "offer": format_offer_name(offer.provider, offer.instance_type),
        "region": offer.region,
        "purchase": offer.purchase.removeprefix("on_"),
        "time": format_duration(point.time_s),
        "cost": format_range(low, high) if high > 0 else format_usd(0.0),
    }


def _build_tsv_row(point: SweepPoint) -> dict[str, Any]:
    """Return a point at full precision, with central estimates of time and cost."""
    bill = point.offer.bill
    return {**point.to_json(), "run_time_s": point.time_s, "cost_usd": bill.total.mid if bill else None}

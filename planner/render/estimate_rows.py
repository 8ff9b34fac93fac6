"""Offers of an estimate as flat rows at full precision, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .estimate_notes import format_footnotes, format_summary_lines
from .estimate_table import build_table_columns, build_table_rows, format_title, select_shown_offers
from .output import UNKNOWN, Column

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..plan.estimate import Estimate
    from ..plan.offer_estimate import BestBatch, OfferEstimate
    from ..units import Interval


BOUNDS = ("low", "mid", "high")
OFFER_KEYS = (
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
    "latency_s_low", "latency_s_mid", "latency_s_high", "shard", "mfu_low", "mfu_mid", "mfu_high",
    "tokens_per_s_low", "tokens_per_s_mid", "tokens_per_s_high", "usd_per_million_tokens",
    "gradient_accumulation_steps", "recomputed",
)  # fmt: skip


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
    frame = pd.DataFrame([build_offer_row(one) for one in estimate.offers], columns=list(OFFER_KEYS))
    money = [name for name in OFFER_KEYS if "usd" in name]
    return frame.astype(dict.fromkeys(money, "float64"))


def build_offer_row(one: OfferEstimate) -> dict[str, Any]:
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
        "shard": str(device_estimate.sharding),
        **_build_interval_cells("mfu", device_estimate.mfu),
        **_build_interval_cells("tokens_per_s", device_estimate.tokens_per_s),
        "usd_per_million_tokens": one.usd_per_million_tokens,
        "gradient_accumulation_steps": device_estimate.accumulation_steps,
        "recomputed": device_estimate.recomputed,
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


ALL_COLUMNS_WIDTH = 200


def format_estimate_html(estimate: Estimate) -> str:
    """Return the decision, title, table of the best offers and notes."""
    shown, left_out = select_shown_offers(estimate, show_all=False)
    columns = build_table_columns(estimate, ALL_COLUMNS_WIDTH)
    notes = [left_out, *format_summary_lines(estimate), *format_footnotes(estimate, shown)]
    body = _format_body(columns, build_table_rows(estimate, shown))
    return (
        f"<table><caption><strong>{escape(estimate.decision.sentence)}</strong><br>{escape(format_title(estimate))}"
        f"</caption>{_format_head(columns)}{body}"
        f"</table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"
    )


def _format_head(columns: Sequence[Column]) -> str:
    """Return the header row, with column scopes for screen readers."""
    cells = (f'<th scope="col"{_format_alignment(column)}>{escape(column.header)}</th>' for column in columns)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _format_alignment(column: Column) -> str:
    """Return the alignment of a cell; notebooks align all text to the right by default."""
    return f' style="text-align:{column.justify}"'


def _format_body(columns: Sequence[Column], rows: Sequence[Mapping[str, str | None]]) -> str:
    """Return the table body."""
    lines = (
        "".join(
            f"<td{_format_alignment(c)}>{escape(UNKNOWN if (cell := row[c.key]) is None else cell)}</td>"
            for c in columns
        )
        for row in rows
    )
    return f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody>"

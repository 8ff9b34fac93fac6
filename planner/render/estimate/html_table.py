"""Estimates as HTML tables for notebooks: all text escaped, no scripts or style sheets."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ..output import UNKNOWN, Column
from .footnotes import format_footnotes
from .summary import format_summary_lines
from .table import build_table_columns, build_table_row, format_title, select_shown_offers

if TYPE_CHECKING:
    from ...plan.cost_terms import Currency
    from ...plan.result.estimate import Estimate
    from ...plan.result.offer_estimate import OfferEstimate

__all__ = ["format_estimate_html"]

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

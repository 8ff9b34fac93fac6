"""An estimate as HTML for notebooks: all text is escaped; there are no scripts or style sheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..output import UNKNOWN, Column
from .notes import format_footnotes, format_summary_lines
from .table import build_table_columns, build_table_rows, format_title, select_shown_offers

if TYPE_CHECKING:
    from ...plan.result.estimate import Estimate

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

"""An estimate as a table for a notebook: every text escaped, no script, no style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from .estimate import shown_offers, table_columns, table_row, title_text
from .output import UNKNOWN, Column
from .summary import summary_lines
from .trust import trust_lines

if TYPE_CHECKING:
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.result import Estimate
    from ..plan.terms import Currency

__all__ = ["estimate_html"]

ALL_COLUMNS_WIDTH = 200


def estimate_html(estimate: Estimate) -> str:
    """Return title, table of the best offers, what to take, and what the numbers rest on."""
    shown, left_out = shown_offers(estimate, show_all=False)
    currency = estimate.terms.currency
    columns = table_columns(estimate, ALL_COLUMNS_WIDTH)
    notes = [*summary_lines(estimate), left_out, *trust_lines(estimate, shown)]
    body = _body(columns, shown, currency)
    return (
        f"<table><caption>{escape(title_text(estimate))}</caption>{_head(columns)}{body}"
        f"</table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"
    )


def _head(columns: Sequence[Column]) -> str:
    """Return the header row, each cell bound to its column for who reads by ear."""
    cells = (f'<th scope="col"{_side(column)}>{escape(column.header)}</th>' for column in columns)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _side(column: Column) -> str:
    """Return where a cell's text stands: notebooks put all of it on the right, names too."""
    return f' style="text-align:{column.justify}"'


def _body(columns: Sequence[Column], shown: Sequence[OfferEstimate], currency: Currency) -> str:
    """Return the rows."""
    rows = (table_row(one, currency) for one in shown)
    lines = ("".join(f"<td{_side(c)}>{escape(row[c.key] or UNKNOWN)}</td>" for c in columns) for row in rows)
    return f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody>"

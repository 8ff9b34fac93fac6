"""Estimate as HTML for notebooks, and as a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..errors import UsageError
from .estimate_screen import WIDE, build_cells, list_notes, pick_columns, select_shown_offers
from .offer_columns import VALUE_NAMES, build_values
from .output import UNKNOWN, Column

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..plan.estimate import Estimate


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
    body = _format_body(columns, build_cells(estimate, shown, [column.key for column in columns]))
    notes = [f"<p>{escape(' '.join(notes))}</p>"] if (notes := list_notes(estimate, shown)) else []
    return (
        f"<table><caption>{escape(estimate.decision.sentence)}</caption>{_format_head(columns)}{body}</table>"
        f"{''.join(notes)}"
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

"""Estimate as HTML for notebooks, and as a data frame."""

from __future__ import annotations

from collections.abc import Sequence
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
    head = _format_row('th scope="col"', columns, [column.header for column in columns])
    cells = build_cells(estimate, shown, [column.key for column in columns])
    body = "".join(_format_row("td", columns, [row[column.key] for column in columns]) for row in cells)
    notes = " ".join(list_notes(estimate, shown))
    return (
        f"<table><caption>{escape(estimate.decision.sentence)}</caption>"
        f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        f"{f'<p>{escape(notes)}</p>' if notes else ''}"
    )


def _format_row(tag: str, columns: Sequence[Column], texts: Sequence[str | None]) -> str:
    """Return a row; its cells say their alignment, since notebooks align all text to the right by default."""
    end = tag.partition(" ")[0]
    cells = (
        f'<{tag} style="text-align:{column.justify}">{escape(UNKNOWN if text is None else text)}</{end}>'
        for column, text in zip(columns, texts, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"

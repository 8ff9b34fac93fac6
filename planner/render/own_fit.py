"""Updates of the user's own coefficients as a table or TSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .accuracy import format_percent
from .output import Column, emit_rows

if TYPE_CHECKING:
    from ..lab.own_fit import UserFit

_COLUMNS = (
    Column(key="accelerator", header="accelerator"),
    Column(key="measurements", header="rows", justify="right"),
    Column(key="ratio_before", header="measured / packaged", format=lambda v: f"{v:.2f}", justify="right"),
    Column(key="median_ape_before", header="error before", format=format_percent, justify="right"),
    Column(key="median_ape_after", header="after", format=format_percent, justify="right"),
)


def emit_own_fit(found: UserFit) -> None:
    """Write one row for each updated accelerator to standard output."""
    rows = [
        {
            "accelerator": one.accelerator,
            "measurements": one.update.measurements,
            "ratio_before": one.ratio_before,
            "median_ape_before": one.median_ape_before,
            "median_ape_after": one.median_ape_after,
        }
        for one in found.devices
    ]
    emit_rows(_COLUMNS, rows, title="errors on these rows themselves")

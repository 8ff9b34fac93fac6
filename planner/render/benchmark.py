"""Results of `gpuplan benchmark` as a table, TSV or JSON."""

from __future__ import annotations

from typing import Any

from ..numbers import format_short
from ..profile.benchmark_rows import CSV_COLUMNS
from .output import Column, emit_json, emit_rows

_SHOWN = ("batch_size", "mode", "precision", "compiled", "attention")  # on a terminal, beside name and time


def _build_columns() -> list[Column]:
    """Return the workload's name and time, then the columns of the CSV."""
    first = [
        Column(key="workload", header="workload"),
        Column(key="step_ms", header="step ms", format=format_short, justify="right"),
    ]
    rest = [name for name in CSV_COLUMNS if name != "step_ms"]
    return first + [Column(key=name, header=name.replace("_", " "), terminal=name in _SHOWN) for name in rest]


def emit_benchmark(found: dict[str, Any], *, as_json: bool) -> None:
    """Write the measured rows to standard output; skipped workloads are in the JSON alone."""
    if as_json:
        emit_json("gpuplan.benchmark/1", found)
        return
    name = found["accelerator"] or found["device"]["name"]
    emit_rows(_build_columns(), found["rows"], title=f"{name} · {found['backend']}")

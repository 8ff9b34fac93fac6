"""Profiles as tables, TSV or JSON, and progress of a measurement, without computation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..profile.benchmark_suite import CSV_COLUMNS
from ..profile_schema import MemoryRecord, ProfileDocument, RowRecord
from ..units import GIB, MS_PER_S, format_short
from .output import Column, emit_json, emit_rows, format_json

_COLUMNS = [
    Column(key="batch_size", header="batch", justify="right"),
    Column(key="precision", header="precision"),
    Column(key="status", header="status"),
    Column(key="fit_ms", header="fit step ms", format=lambda v: f"{v:.4g}", justify="right"),
    Column(key="width", header="± of median", format=lambda v: f"{v / 2:.1%}", justify="right"),
    Column(key="step_ms", header="step alone ms", format=lambda v: f"{v:.4g}", justify="right"),
    Column(key="samples_per_s", header="samples/s", format=format_short, justify="right"),
    Column(key="compile_s", header="compile s", format=format_short, justify="right"),
    Column(key="device_peak_bytes", header="device GiB", format=lambda v: f"{v / GIB:.2f}", justify="right"),
    Column(key="host_peak_bytes", header="host GiB", format=lambda v: f"{v / GIB:.2f}", justify="right"),
    Column(key="limit", header="limit"),
]


def emit_profile(document: ProfileDocument, *, as_json: bool) -> None:
    """Write a profile to standard output: JSON, or its rows as a table."""
    if as_json:
        emit_json(document["schema"], _omit_schema(document))
        return
    emit_rows(_COLUMNS, [_build_row(row) for row in document["rows"]], title=format_title(document))


def _format_quantity(value: float | str) -> str:
    """Format a number; money stands in documents as decimal text."""
    return f"{float(value):.4g}"


_PARTS = [
    Column(key="part", header="part"),
    Column(key="unit", header="unit"),
    Column(key="low", header="low", format=_format_quantity, justify="right"),
    Column(key="predicted", header="predicted", format=_format_quantity, justify="right"),
    Column(key="high", header="high", format=_format_quantity, justify="right"),
    Column(key="actual", header="actual", format=_format_quantity, justify="right"),
    Column(key="actual_over_predicted", header="ratio", format=lambda v: f"{v:.2f}", justify="right"),
    Column(key="inside", header="inside"),
]


def emit_reconciled(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Write predicted and actual values to standard output."""
    if as_json:
        emit_json(result["schema"], _omit_schema(result))
        return
    rows = []
    for part in result["parts"]:
        ends = part["predicted"] or {"low": None, "mid": None, "high": None}
        inside = {True: "yes", False: "no", None: None}[part["inside"]]
        rows.append({**part, "low": ends["low"], "predicted": ends["mid"], "high": ends["high"], "inside": inside})
    emit_rows(_PARTS, rows, title=f"{result['model']} on {result['devices']:g}× {result['accelerator']}")


def format_profile_json(document: ProfileDocument) -> str:
    """Format a profile as the text of its file."""
    return format_json(document["schema"], _omit_schema(document))


def _omit_schema(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "schema"}


def format_title(document: ProfileDocument) -> str:
    """Format model, backend, device and mode of a measurement in one line."""
    device = (document["environment"] or {}).get("device") or {}
    parts = [document["model"], document["backend"], device.get("name") or "unknown device", document["mode"]]
    return " · ".join(str(part) for part in parts)


def iter_summary_sentences(document: ProfileDocument) -> Iterator[str]:
    """Yield the summary: fixed and per-sample time, findings and caveats."""
    for split in document["splits"]:
        fixed_ms, sample_ms = split["fixed_s"] * MS_PER_S, split["per_sample_s"] * MS_PER_S
        yield f"{split['precision']}: {fixed_ms:.3g} ms per step and {sample_ms:.3g} ms per sample"
    for row in document["rows"]:
        about = f"batch {row['batch_size']}"
        if row["message"]:
            yield f"{about}: {row['status'].replace('_', ' ')}: {row['message']}"
        for finding in row["findings"]:
            yield f"{about}: {finding}"
        if row["memory"] is not None:
            yield from _iter_memory_sentences(about, row["memory"])
    yield from document["notes"]


def _iter_memory_sentences(about: str, memory: MemoryRecord) -> Iterator[str]:
    predicted, peak = memory.get("predicted_bytes"), memory.get("device_peak_bytes")
    if predicted is None:
        return
    text = f"{about}: memory of the step: {predicted / GIB:.2f} GiB predicted"
    if peak is not None:
        yield f"{text}, {peak / GIB:.2f} measured ({memory['measured_over_predicted']:.2f} times)"
        return
    grown = memory.get("host_growth_bytes")
    if grown is not None:
        yield f"{text}; the process grew by {grown / GIB:.2f} GiB, compilation included"


def _build_row(row: RowRecord) -> dict[str, Any]:
    fit, step, memory = row["fit"], row["step"], row["memory"]
    fit_s = fit["median_s"] if fit else None
    step_s = step["median_s"] if step else None
    batch_size = row["batch_size"]
    return {
        "batch_size": row["batch_size"],
        "precision": row["precision"],
        "status": row["status"],
        "fit_ms": None if fit_s is None else fit_s * MS_PER_S,
        "width": fit.get("width") if fit else None,
        "step_ms": None if step_s is None else step_s * MS_PER_S,
        "samples_per_s": None if fit_s is None or batch_size is None else batch_size / fit_s,
        "compile_s": row["prepare"].get("compile_s"),
        "limit": row["limit"],
        "device_peak_bytes": memory["device_peak_bytes"] if memory else None,
        "host_peak_bytes": memory["host_peak_bytes"] if memory else None,
    }


class ProgressFormatter:
    """Formatter of measurement messages as progress text."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_s: float | None = None
        self._about = ""
        self._process = 1
        self._windows = 0

    def line(self, message: Mapping[str, Any]) -> str:
        """Format a message with the estimate so far, and the time that is left."""
        if message["event"] == "left":
            self._ends_s = self._clock() + message["left_s"]
            return "starting"
        left_s = 0.0 if self._ends_s is None else self._ends_s - self._clock()
        left = f" · about {5 * math.ceil(left_s / 5)} s left" if left_s > 0 else " · nearly done"
        return self._describe(message) + ("" if self._ends_s is None else left)

    def _describe(self, message: Mapping[str, Any]) -> str:
        event = message["event"]
        if event == "begin":
            size = message["batch_size"] or "?"
            self._about = f"batch {size}" + (f" · {message['precision']}" if message["precision"] else "")
            self._process = message["process"]
            return f"{self._about}: starting process {self._process}, building the model"
        if event == "script":
            return f"{self._about}: building the model, {message['at']}"
        if event == "ready":
            self._windows = 0
            about = f"batch {message['batch_size']} · {message['facts']['precision']}"
            self._about = about if self._process == 1 else f"{about} · process {self._process}"
            return f"{self._about}: compiling"
        if event == "warm":
            return f"{self._about}: warming up, {message['step_s'] * MS_PER_S:.4g} ms per step"
        if event == "window":
            self._windows += 1
            width = message["width"]
            sure = "" if width is None else f" ± {width / 2:.1%}"
            what = "fit()" if message["phase"] == "fit" else "the step alone"
            return f"{self._about}: {what} {message['median_s'] * MS_PER_S:.4g} ms{sure} ({self._windows} windows)"
        return f"{self._about}: {event}"


@contextmanager
def show_progress() -> Iterator[Any]:
    """Show a progress line during a measurement (stderr, terminals only); yields the message consumer."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console

    watcher = ProgressFormatter()
    with Console(stderr=True).status("starting") as status:
        yield lambda message: status.update(watcher.line(message))


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

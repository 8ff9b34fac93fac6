"""Profiles as tables, TSV or JSON, and progress of a measurement, without computation."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..profile.benchmark import CSV_COLUMNS
from ..profile_schema import MemoryRecord, ProfileDocument, RowRecord
from ..units import GIB, MS_PER_S, format_short
from .output import Column, emit_result, make_columns, make_numbers

_COLUMNS = [
    *make_numbers(batch_size="batch"),
    *make_columns(precision="precision", status="status"),
    *make_numbers(fit_ms="fit step ms", format="{:.4g}".format),
    *make_numbers(width="± of median", format=lambda width: f"{width / 2:.1%}"),
    *make_numbers(step_ms="step alone ms", format="{:.4g}".format),
    *make_numbers(samples_per_s="samples/s", compile_s="compile s", format=format_short),
    *make_numbers(
        device_peak_bytes="device GiB", host_peak_bytes="host GiB", format=lambda size: f"{size / GIB:.2f}"
    ),
    *make_columns(limit="limit"),
]


def emit_profile(document: ProfileDocument, *, as_json: bool) -> None:
    """Write a profile to standard output: JSON, or its rows as a table."""
    device = (document["environment"] or {}).get("device") or {}
    about = (document["model"], document["backend"], device.get("name") or "unknown device", document["mode"])
    rows, title = map(_build_row, document["rows"]), " · ".join(map(str, about))
    emit_result(document["schema"], document, _COLUMNS, rows, as_json=as_json, title=title)


_PARTS = [
    *make_columns(part="part", unit="unit"),
    *make_numbers(  # money stands in documents as decimal text
        low="low", predicted="predicted", high="high", actual="actual", format=lambda value: f"{float(value):.4g}"
    ),
    *make_numbers(actual_over_predicted="ratio", format="{:.2f}".format),
    *make_columns(inside="inside"),
]


def emit_reconciled(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Write predicted and actual values to standard output."""
    rows = []
    for part in result["parts"]:
        ends = part["predicted"] or {"low": None, "mid": None, "high": None}
        inside = {True: "yes", False: "no", None: None}[part["inside"]]
        rows.append({**part, "low": ends["low"], "predicted": ends["mid"], "high": ends["high"], "inside": inside})
    title = f"{result['model']} on {result['devices']:g}× {result['accelerator']}"
    emit_result(result["schema"], result, _PARTS, rows, as_json=as_json, title=title)


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
    elif (grown := memory.get("host_growth_bytes")) is not None:
        yield f"{text}; the process grew by {grown / GIB:.2f} GiB, compilation included"


def _build_row(row: RowRecord) -> dict[str, Any]:
    fit, memory = row["fit"], dict(row["memory"] or ())
    fit_s, step_s = (part["median_s"] if part else None for part in (fit, row["step"]))
    batch_size = row["batch_size"]
    return {
        **{key: row[key] for key in ("batch_size", "precision", "status", "limit")},
        "fit_ms": None if fit_s is None else fit_s * MS_PER_S,
        "width": fit.get("width") if fit else None,
        "step_ms": None if step_s is None else step_s * MS_PER_S,
        "samples_per_s": None if fit_s is None or batch_size is None else batch_size / fit_s,
        "compile_s": row["prepare"].get("compile_s"),
        "device_peak_bytes": memory.get("device_peak_bytes"),
        "host_peak_bytes": memory.get("host_peak_bytes"),
    }


def format_colab_cell(command: str, files: Mapping[str, str]) -> str:
    """Return a cell that writes files, runs a command of gpuplan, and prints its `--measured` or its errors."""
    cell = Path(__file__).with_name("colab_cell.txt").read_text(encoding="utf-8")
    return cell.format(files=dict(files), words=shlex.split(command))


class ProgressFormatter:
    """Formatter of measurement messages as progress text."""

    ends_s: float | None = None
    about, process, windows = "", 1, 0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    def line(self, message: Mapping[str, Any]) -> str:
        """Format a message with the estimate so far, and the time that is left."""
        event = message["event"]
        if event == "left":
            self.ends_s = self._clock() + message["left_s"]
            return "starting"
        if event == "begin":
            precision = f" · {message['precision']}" if message["precision"] else ""
            self.about, self.process = f"batch {message['batch_size'] or '?'}{precision}", message["process"]
        elif event == "ready":
            process = "" if self.process == 1 else f" · process {self.process}"
            self.about = f"batch {message['batch_size']} · {message['facts']['precision']}{process}"
            self.windows = 0
        self.windows += event == "window"
        left_s = 0.0 if self.ends_s is None else self.ends_s - self._clock()
        left = f" · about {5 * math.ceil(left_s / 5)} s left" if left_s > 0 else " · nearly done"
        return f"{self.about}: {self._describe(message)}{'' if self.ends_s is None else left}"

    def _describe(self, message: Mapping[str, Any]) -> str:
        event = str(message["event"])
        if event == "begin":
            return f"starting process {self.process}, building the model"
        if event == "script":
            return f"building the model, {message['at']}"
        if event == "warm":
            return f"warming up, {message['step_s'] * MS_PER_S:.4g} ms per step"
        if event != "window":
            return "compiling" if event == "ready" else event
        sure = "" if message["width"] is None else f" ± {message['width'] / 2:.1%}"
        what = "fit()" if message["phase"] == "fit" else "the step alone"
        return f"{what} {message['median_s'] * MS_PER_S:.4g} ms{sure} ({self.windows} windows)"


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


def emit_benchmark(found: dict[str, Any], *, as_json: bool) -> None:
    """Write the measured rows to standard output; skipped workloads are in the JSON alone."""
    columns = [
        *make_columns(workload="workload"),
        *make_numbers(step_ms="step ms", format=format_short),
        *(
            Column(key=name, header=name.replace("_", " "), terminal=name in _SHOWN)
            for name in CSV_COLUMNS
            if name != "step_ms"
        ),
    ]
    title = f"{found['accelerator'] or found['device']['name']} · {found['backend']}"
    emit_result("gpuplan.benchmark/1", found, columns, found["rows"], as_json=as_json, title=title)

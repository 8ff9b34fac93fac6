"""Assembly of a profile: empty documents, rows from the values of several processes, and derived values."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

from ..errors import UsageError
from ..profile_schema import PROFILE_SCHEMA, EpochRecord, MemoryRecord, ProfileDocument, RowRecord, Split, Timing
from .background_load import combine_loads
from .findings import find_bottleneck, find_caveats
from .measuring_process import ProcessResult
from .statistics import pool_timings
from .windows import MeasurementRules


class Configuration(TypedDict):
    """Requested batch size [-] and precision; None for the model's own."""

    batch_size: int | None
    precision: str | None


def create_profile(
    *, model: str, mode: str, backend: str, data: str, rules: dict[str, Any], source: str
) -> ProfileDocument:
    """Return a profile without rows; see `schemas/gpuplan.profile.json` for the arguments."""
    from .._version import __version__

    return {
        "schema": PROFILE_SCHEMA,
        "gpuplan_version": __version__,
        "status": "running",
        "source": source,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        "mode": mode,
        "backend": backend,
        "data": data,
        "rules": rules,
        "accelerator": None,
        "devices": 1,
        "environment": None,
        "rows": [],
        "splits": [],
        "largest_batch_size": None,
        "run": None,
        "workloads": [],
        "notes": [],
    }


def create_row(*, status: str, batch_size: int | None) -> RowRecord:
    """Return a row without measured values."""
    return {
        "batch_size": batch_size,
        "precision": None,
        "asked_precision": None,
        "status": status,
        "message": None,
        "fit": None,
        "step": None,
        "epoch": None,
        "memory": None,
        "pipeline": None,
        "state_while_timed": None,
        "workload": None,
        "prepare": {},
        "load": None,
        "limit": None,
        "findings": [],
    }


def build_row(
    results: Sequence[ProcessResult], *, asked: Configuration, rules: MeasurementRules, options: str
) -> RowRecord:
    """Build the row of a configuration from the results of one or more processes.

    A failure after the first one becomes a message. No advice repeats the command-line `options`.
    """
    first = results[0]
    prepare = first.values.get("prepare", {})
    row = create_row(status=first.status, batch_size=first.values.get("batch_size") or asked["batch_size"])
    row |= {
        "pipeline": first.values.get("pipeline"),
        "state_while_timed": first.values.get("state_while_timed"),
        "precision": asked["precision"] or prepare.get("precision"),
        "prepare": prepare,
        "asked_precision": asked["precision"],
        "message": _build_message(results),
        "load": combine_loads([result.load for result in results if result.load is not None]),
        "fit": _pool([timing for result in results if (timing := result.values.get("fit"))], rules),
        "step": _pool([timing for result in results if (timing := result.values.get("step"))], rules),
        "memory": _compute_largest([m for result in results if (m := result.values.get("memory"))]),
    }
    epochs = [epoch["beside_steps_s"] for result in results if (epoch := result.values.get("epoch"))]
    if epochs:
        beside = [beside_s for beside_s in epochs if beside_s is not None]
        row["epoch"] = {"beside_steps_s": statistics.median(beside) if beside else None}
        row["epoch"] = compute_epoch(row, samples=prepare.get("samples"), batch_size=row["batch_size"] or 1)
    if row["fit"] is not None:
        row["findings"] = find_caveats(row, rules=rules, options=options)
    return row


def _pool(timings: Sequence[Timing], rules: MeasurementRules) -> Timing | None:
    return pool_timings(timings, width=rules.width) if timings else None


def _build_message(results: Sequence[ProcessResult]) -> str | None:
    """Return the first failure, with the process's number unless it is the first; None without failures."""
    for number, result in enumerate(results, start=1):
        if result.message is not None:
            return result.message if number == 1 else f"process {number} {result.status}: {result.message}"
    return None


def _compute_largest(memories: Sequence[MemoryRecord]) -> MemoryRecord | None:
    """Return the maximum of each value over all processes; None without any."""
    known = {
        name: max(
            (value for one in memories if (value := cast("int | None", one.get(name))) is not None), default=None
        )
        for name in ("device_peak_bytes", "host_peak_bytes", "host_growth_bytes")
    }
    return cast("MemoryRecord", known) if memories else None


def compute_epoch(row: RowRecord, *, samples: int | None, batch_size: int) -> EpochRecord:
    """Return the epoch of a row with its number of steps and total time [s]; None if unknown."""
    fit, epoch = row["fit"], row["epoch"]
    steps = None if samples is None else -(-samples // batch_size)
    step_s = None if fit is None else fit["median_s"]
    beside_s = None if epoch is None else epoch["beside_steps_s"]
    total_s = None
    if steps is not None and step_s is not None and beside_s is not None:
        total_s = steps * step_s + beside_s
    return {"beside_steps_s": beside_s, "steps": steps, "total_s": total_s}


def find_accelerator_name(device: Mapping[str, Any]) -> str | None:
    """Return the catalog's name of a device; None if it is not in the catalog."""
    from ..offers.catalog import load_catalog
    from ..offers.rows import CPU

    if device["platform"] == "cpu":
        return str(CPU)
    try:
        return load_catalog().names.resolve(device["name"])
    except UsageError:
        return None


def complete_profile(document: ProfileDocument) -> ProfileDocument:
    """Return a copy of the document with the values derived from all rows."""
    splits = list(_compute_splits(document["rows"]))
    fixed_s = {split["precision"]: split["fixed_s"] for split in splits}
    rows = []
    for row in document["rows"]:
        limit, sentence = find_bottleneck(row, fixed_s=fixed_s.get(row["precision"]))
        rows.append(row | {"limit": limit, "findings": [*row["findings"], *([sentence] if sentence else [])]})
    failed = [row["batch_size"] for row in rows if row["status"] == "out_of_memory" and row["batch_size"]]
    fitted = [size for row in rows if row["status"] == "measured" and (size := row["batch_size"])]
    return document | {
        "rows": rows,
        "splits": splits,
        "largest_batch_size": {"fitted": max(fitted, default=None), "out_of_memory_at": min(failed, default=None)},
    }


def _compute_splits(rows: Sequence[RowRecord]) -> Iterator[Split]:
    """Yield the fixed and the per-sample time of a step for each precision with two batch sizes."""
    from ..predict.from_profile.error_model import split_fixed_per_sample

    for precision in dict.fromkeys(row["precision"] for row in rows):
        mine = [
            (row["batch_size"], row["fit"]["median_s"])
            for row in rows
            if row["precision"] == precision and row["fit"] and row["fit"]["median_s"] and row["batch_size"]
        ]
        found = split_fixed_per_sample(*zip(*mine, strict=True)) if mine else None
        if found is not None:
            yield {"precision": precision, "fixed_s": found[0], "per_sample_s": found[1]}

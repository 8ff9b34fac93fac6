"""The rows of a profile: what several processes say of a configuration, and what follows from all rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import UsageError
from .background_load import combine_uses
from .findings import find_bottleneck, find_caveats
from .pooling import pool_timings
from .windows import MeasurementRules
from .worker import ProcessResult

__all__ = [
    "SCHEMA",
    "build_row",
    "complete_profile",
    "compute_epoch",
    "create_profile",
    "create_row",
    "find_accelerator_name",
]  # fmt: skip

SCHEMA = "gpuplan.profile/1"
MEASURED = ("fit", "step", "epoch", "memory", "pipeline", "state_while_timed")


def create_profile(
    *, model: str, mode: str, backend: str, data: str, rules: dict[str, Any], source: str
) -> dict[str, Any]:
    """Return a profile without rows.

    Args:
        model: What it is called.
        mode, backend, data, rules, source: See the schema.
    """
    from .._version import __version__

    return {
        "schema": SCHEMA, "gpuplan_version": __version__, "status": "running", "source": source,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model, "mode": mode, "backend": backend, "data": data, "rules": rules, "accelerator": None,
        "devices": 1, "environment": None, "rows": [], "splits": [], "largest_batch_size": None, "run": None,
        "workloads": [], "notes": [],
    }  # fmt: skip


def create_row(*, status: str, batch_size: int | None) -> dict[str, Any]:
    """Return a row in which nothing is known yet."""
    return {
        "batch_size": batch_size, "precision": None, "asked_precision": None, "status": status, "message": None,
        **dict.fromkeys(MEASURED), "workload": None, "prepare": {}, "load": None, "limit": None, "findings": [],
    }  # fmt: skip


def build_row(
    outcomes: Sequence[ProcessResult], *, asked: dict[str, Any], rules: MeasurementRules, options: str
) -> dict[str, Any]:
    """Return the row of a configuration that several processes measured, one after the other.

    Args:
        outcomes: Of each process, one at least; what a later one fails at is a message.
        asked: The configuration: `batch_size`, `precision`; None where it is the model's own.
        rules: That each measured by.
        options: What the user asked for, as typed, so that no advice repeats it.
    """
    first = outcomes[0]
    prepare = first.row.get("prepare", {})
    row = create_row(status=first.status, batch_size=first.row.get("batch_size") or asked["batch_size"])
    row |= {name: first.row.get(name) for name in ("pipeline", "state_while_timed")}
    busy = combine_uses([outcome.busy for outcome in outcomes if outcome.busy is not None])
    row |= {
        "precision": asked["precision"] or prepare.get("precision"), "prepare": prepare,
        "asked_precision": asked["precision"], "message": _message(outcomes),
        "load": busy.to_json() if busy is not None else None,
    }  # fmt: skip
    for name in ("fit", "step"):
        timings = [outcome.row[name] for outcome in outcomes if outcome.row.get(name)]
        row[name] = pool_timings(timings, width=rules.width) if timings else None
    row["memory"] = _largest([outcome.row["memory"] for outcome in outcomes if outcome.row.get("memory")])
    epochs = [outcome.row["epoch"] for outcome in outcomes if outcome.row.get("epoch")]
    if epochs:
        beside = [epoch["beside_steps_s"] for epoch in epochs if epoch["beside_steps_s"] is not None]
        row["epoch"] = {"beside_steps_s": statistics.median(beside) if beside else None}
        row["epoch"] |= compute_epoch(row, samples=prepare.get("samples"), batch_size=row["batch_size"])
    if row["fit"] is not None:
        row["findings"] = find_caveats(row, busy=busy, rules=rules, options=options)
    return row


def _message(outcomes: Sequence[ProcessResult]) -> str | None:
    """Return why a process measured nothing, with its number where others measured; None when all did."""
    for number, outcome in enumerate(outcomes, start=1):
        if outcome.message is not None:
            return outcome.message if number == 1 else f"process {number} {outcome.status}: {outcome.message}"
    return None


def _largest(memories: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the largest of each number that is known; None when there is nothing."""
    if not memories:
        return None
    return {
        name: max((memory[name] for memory in memories if memory[name] is not None), default=None)
        for name in memories[0]
    }


def compute_epoch(row: dict[str, Any], *, samples: int | None, batch_size: int) -> dict[str, Any]:
    """Return how many steps an epoch has, and how long all of it takes; None where that is not known."""
    steps = None if samples is None else -(-samples // batch_size)
    step_s, beside_s = row["fit"]["median_s"], row["epoch"]["beside_steps_s"]
    known = steps is not None and step_s is not None and beside_s is not None
    return {"steps": steps, "total_s": steps * step_s + beside_s if known else None}


def find_accelerator_name(device: dict[str, Any]) -> str | None:
    """Return the catalog's name of a device; None for one that the catalog does not know."""
    from ..offers.catalog import load_catalog
    from ..offers.rows import CPU

    if device["platform"] == "cpu":
        return str(CPU)
    try:
        return load_catalog().names.resolve(device["name"])
    except UsageError:
        return None


def complete_profile(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what follows from all of its rows; what was given stays as it is."""
    splits = list(_splits(document["rows"]))
    rows = [_limited(row, splits) for row in document["rows"]]
    failed = [row["batch_size"] for row in rows if row["status"] == "out_of_memory" and row["batch_size"]]
    fitted = [row["batch_size"] for row in rows if row["status"] == "measured"]
    largest = {"fitted": max(fitted, default=None), "out_of_memory_at": min(failed, default=None)}
    return document | {"rows": rows, "splits": splits, "largest_batch_size": largest}


def _limited(row: dict[str, Any], splits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a row with what limits its step, and a sentence on it."""
    if row["fit"] is None:
        return row
    fixed_s = {split["precision"]: float(split["fixed_s"]) for split in splits}.get(row["precision"])
    limit, said = find_bottleneck(row, fixed_s=fixed_s)
    return row | {"limit": limit, "findings": [*row["findings"], said] if said else row["findings"]}


def _splits(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield, for each precision with two batch sizes, the fixed part of a step and what a sample adds."""
    from ..predict.from_profile.error_model import split_fixed_per_sample

    for precision in dict.fromkeys(row["precision"] for row in rows):
        mine = [
            (row["batch_size"], row["fit"]["median_s"]) for row in rows
            if row["precision"] == precision and row["fit"] and row["fit"]["median_s"] and row["batch_size"]
        ]  # fmt: skip
        found = split_fixed_per_sample(*zip(*mine, strict=True)) if mine else None
        if found is not None:
            yield {"precision": precision, "fixed_s": found[0], "per_sample_s": found[1]}

"""`gpuplan profile`: which configurations, each in a process of its own, and the file that comes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError
from ..measure.findings import findings_of, limit_of
from ..measure.windows import Rules
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .profile_worker import Outcome, Worker

__all__ = [
    "BACKENDS", "SCHEMA", "Request", "accelerator_of", "empty_document", "finished", "profile", "row_of",
]  # fmt: skip

SCHEMA = "gpuplan.profile/1"
BACKENDS = ("jax", "tensorflow", "torch")
SWEEP = 4  # the default sweep's other batch is this many times smaller [-]
MEASURED = ("fit", "step", "epoch", "memory", "pipeline", "state_while_timed")
OnEvent = Callable[[dict[str, Any]], None]
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be measured.

    Args:
        model: A MODEL reference.
        batch_sizes: To be measured; empty: the model's own and a quarter of it [-].
        precisions: To be measured; empty: the model's own.
        backend: Keras's; None: `KERAS_BACKEND`, else JAX.
        device: Where; None: where the backend computes by itself.
        data: Random data of the true shapes, or the script's own.
        options: Mode, loss, optimizer, samples and epochs.
        argv: Arguments of a script.
        rules: When to start and to stop.
        trace: Whether to add what the rows compute, for plans.
        typed: The options as typed, for advice that does not repeat them.
    """

    model: str
    batch_sizes: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    backend: str | None = None
    device: Literal["cpu", "gpu", "tpu"] | None = None
    data: Literal["synthetic", "script"] = "synthetic"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
    argv: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    trace: bool = True
    typed: str = ""


def profile(
    request: Request, *, on_event: OnEvent = lambda message: None, keep: Keep = lambda doc: None
) -> dict[str, Any]:
    """Measure every configuration and return the profile.

    Args:
        request: What.
        on_event: Told what goes on: `begin`, `ready`, `warm`, `window`, `done`, `failed`.
        keep: Called with the whole document whenever there is more of it; also before KeyboardInterrupt leaves.

    Raises:
        UsageError, GpuplanError: The model cannot be built; nothing was measured.
        KeyboardInterrupt: After what was measured was kept.
    """
    base = Path.cwd()
    reference = parse_reference(request.model, base=base)
    if reference.kind == "json":
        raise UsageError(f"`{request.model}` is a file of results", hint="give the model that it was made of")
    backend = _backend(request.backend)
    document = empty_document(
        model=request.model, mode=request.options.mode, backend=backend, data=request.data,
        rules=request.rules.to_json(), source="profile",
    )  # fmt: skip
    for configuration in _configurations(request, document):
        on_event({"event": "begin", **configuration})
        worker = Worker(_child_request(request, backend, configuration, base), on_event)
        try:
            outcome = worker.run()
        except KeyboardInterrupt:
            worker.stop()
            _add(document, worker.interrupted(), configuration, request)
            document["status"] = "interrupted"
            keep(finished(document))
            raise
        finally:
            worker.stop()
        _add(document, outcome, configuration, request)
        keep(finished(document))
    document["status"] = "complete"
    if request.trace:
        _trace(document, request, base)
    return finished(document)


def _trace(document: dict[str, Any], request: Request, base: Path) -> None:
    """Add what each measured row computes, so that the plan knows the work; compare the memory.

    Run after everything was measured, for tracing takes a processor. What cannot be traced is a note.
    """
    from ..workload.load import load_workload

    for row in document["rows"]:
        if row["status"] != "measured":
            continue
        options = replace(
            request.options, batch_size=row["batch_size"], precision=row["asked_precision"],
            compiled=False if document["backend"] == "torch" else None,
        )  # fmt: skip
        try:
            workload = load_workload(request.model, options=options, base=base, argv=request.argv)
        except GpuplanError as error:
            document["notes"].append(f"not traced, so no plan can be made of it: {error}")
            return
        row["workload"] = len(document["workloads"])
        document["workloads"].append(workload.to_json())
        _compare_memory(row["memory"], workload.memory.total_bytes)


def _compare_memory(memory: dict[str, Any] | None, predicted_bytes: int) -> None:
    """Add what was predicted, and how far off that is where the device's memory is counted."""
    if memory is None:
        return
    peak = memory["device_peak_bytes"]
    memory["predicted_bytes"] = predicted_bytes
    memory["measured_over_predicted"] = peak / predicted_bytes if peak else None


def _backend(wanted: str | None) -> str:
    name = wanted or os.environ.get("KERAS_BACKEND") or "jax"
    if name not in BACKENDS:
        raise UsageError(f"unknown backend `{name}`", hint=f"choose one of {', '.join(BACKENDS)}")
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed", hint=f"`pip install 'gpuplan[{name}]'`")
    return name


def empty_document(
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


def _configurations(request: Request, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield batch sizes and precisions; without batch sizes, the model's own tells the other one."""
    for precision in request.precisions or (None,):
        tried: set[int] = set()
        for batch_size in request.batch_sizes or (request.options.batch_size,):
            yield from _unless_too_big(document, batch_size, precision)
            tried |= {row["batch_size"] for row in document["rows"] if row["batch_size"]}
        if not request.batch_sizes and tried and request.data == "synthetic":
            own = max(tried)
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            fixed = any("fixed" in (row["message"] or "") for row in document["rows"])
            if not fixed:
                yield from _unless_too_big(document, other, precision)


def _unless_too_big(
    document: dict[str, Any], batch_size: int | None, precision: str | None
) -> Iterator[dict[str, Any]]:
    """Yield a configuration unless a smaller one of its precision has not fitted."""
    full = [
        row["batch_size"] for row in document["rows"]
        if row["status"] == "out_of_memory" and row["asked_precision"] == precision and row["batch_size"]
    ]  # fmt: skip
    if batch_size is not None and full and batch_size >= min(full):
        return
    yield {"batch_size": batch_size, "precision": precision}


def _child_request(
    request: Request, backend: str, configuration: dict[str, Any], base: Path
) -> dict[str, Any]:
    options = replace(request.options, **configuration)
    return {
        "reference": request.model, "base": str(base), "options": options.to_json(), "argv": list(request.argv),
        "backend": backend, "device": request.device, "data": request.data, "rules": request.rules.to_json(),
    }  # fmt: skip


# --- what comes of it -------------------------------------------------------------------------------------


def _add(document: dict[str, Any], outcome: Outcome, configuration: dict[str, Any], request: Request) -> None:
    """Add a row."""
    row, prepare = outcome.row, outcome.row.get("prepare", {})
    measured = row_of(status=outcome.status, batch_size=row.get("batch_size") or configuration["batch_size"])
    measured |= {name: row.get(name) for name in MEASURED}
    measured |= {
        "precision": configuration["precision"] or prepare.get("precision"), "prepare": prepare,
        "asked_precision": configuration["precision"], "message": outcome.message,
        "load": outcome.busy.to_json() if outcome.busy is not None else None,
    }  # fmt: skip
    if measured["fit"] is not None:
        measured["findings"] = findings_of(
            measured, busy=outcome.busy, rules=request.rules, options=request.typed
        )
    document["rows"].append(measured)
    if outcome.environment is not None and document["environment"] is None:
        document["environment"] = outcome.environment
        document["accelerator"] = accelerator_of(outcome.environment["device"])


def row_of(*, status: str, batch_size: int | None) -> dict[str, Any]:
    """Return a row in which nothing is known yet."""
    return {
        "batch_size": batch_size, "precision": None, "asked_precision": None, "status": status, "message": None,
        **dict.fromkeys(MEASURED), "workload": None, "prepare": {}, "load": None, "limit": None, "findings": [],
    }  # fmt: skip


def accelerator_of(device: dict[str, Any]) -> str | None:
    """Return the catalog's name of a device; None for one that the catalog does not know."""
    from ..offers.load import load_catalog
    from ..offers.rows import CPU

    if device["platform"] == "cpu":
        return str(CPU)
    try:
        return load_catalog().names.resolve(device["name"])
    except UsageError:
        return None


def finished(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what follows from all of its rows."""
    rows = document["rows"]
    document["splits"] = list(_splits(rows))
    for row in rows:
        if row["fit"] is not None:
            row["limit"], said = limit_of(row, fixed_s=_fixed_s(document, row))
            if said and said not in row["findings"]:
                row["findings"].append(said)
    failed = [row["batch_size"] for row in rows if row["status"] == "out_of_memory" and row["batch_size"]]
    fitted = [row["batch_size"] for row in rows if row["status"] == "measured"]
    document["largest_batch_size"] = {
        "fitted": max(fitted, default=None), "out_of_memory_at": min(failed, default=None),
    }  # fmt: skip
    return document


def _fixed_s(document: dict[str, Any], row: dict[str, Any]) -> float | None:
    for split in document["splits"]:
        if split["precision"] == row["precision"]:
            return float(split["fixed_s"])
    return None


def _splits(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield, for each precision with two batch sizes, the fixed part of a step and what a sample adds."""
    from ..predict.transfer import split_fixed_per_sample

    for precision in dict.fromkeys(row["precision"] for row in rows):
        mine = [
            (row["batch_size"], row["fit"]["median_s"]) for row in rows
            if row["precision"] == precision and row["fit"] and row["fit"]["median_s"] and row["batch_size"]
        ]  # fmt: skip
        found = split_fixed_per_sample(*zip(*mine, strict=True)) if mine else None
        if found is not None:
            yield {"precision": precision, "fixed_s": found[0], "per_sample_s": found[1]}

"""Assembly of a profile: rows from the values of several processes, derived values, and findings in sentences."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

from ..errors import UsageError
from ..profile_schema import (
    PROFILE_SCHEMA,
    EpochRecord,
    LoadRecord,
    MemoryRecord,
    ProfileDocument,
    RowRecord,
    Timing,
)
from ..units import MS_PER_S
from .background_load import OTHERS_SHARE, combine_loads
from .measuring_process import ProcessResult
from .statistics import compute_process_spread, pool_timings
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

    blank: dict[str, Any] = {name: None for name in ProfileDocument.__annotations__ if name != "launch"}
    given = {"model": model, "mode": mode, "backend": backend, "data": data, "rules": rules, "source": source}
    lists: dict[str, Any] = {"rows": [], "splits": [], "workloads": [], "notes": []}
    made = {
        "schema": PROFILE_SCHEMA,
        "gpuplan_version": __version__,
        "status": "running",
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "devices": 1,
    }
    return cast("ProfileDocument", blank | given | lists | made)


def create_row(*, status: str, batch_size: int | None) -> RowRecord:
    """Return a row without measured values."""
    row: dict[str, Any] = dict.fromkeys(RowRecord.__annotations__)
    return cast("RowRecord", row | {"batch_size": batch_size, "status": status, "prepare": {}, "findings": []})


def build_row(results: Sequence[ProcessResult], *, asked: Configuration, rules: MeasurementRules) -> RowRecord:
    """Build the row of a configuration from the results of one or more processes.

    A failure after the first one becomes a message.
    """
    values = [result.values for result in results]
    prepare = values[0].get("prepare", {})
    row = create_row(status=results[0].status, batch_size=values[0].get("batch_size") or asked["batch_size"])
    row |= {
        "pipeline": values[0].get("pipeline"),
        "state_while_timed": values[0].get("state_while_timed"),
        "precision": asked["precision"] or prepare.get("precision"),
        "prepare": prepare,
        "asked_precision": asked["precision"],
        "load": combine_loads([result.load for result in results if result.load is not None]),
        "fit": _pool([timing for one in values if (timing := one.get("fit"))], rules),
        "step": _pool([timing for one in values if (timing := one.get("step"))], rules),
        "memory": _compute_largest([memory for one in values if (memory := one.get("memory"))]),
    }
    failed = next((one for one in results if one.message is not None), results[0])
    row["message"] = failed.message
    if failed is not results[0]:
        row["message"] = f"process {results.index(failed) + 1} {failed.status}: {failed.message}"
    if epochs := [epoch["beside_steps_s"] for one in values if (epoch := one.get("epoch"))]:
        beside = [beside_s for beside_s in epochs if beside_s is not None]
        row["epoch"] = {"beside_steps_s": statistics.median(beside) if beside else None}
        row["epoch"] = compute_epoch(row, samples=prepare.get("samples"), batch_size=row["batch_size"] or 1)
    if row["fit"] is not None:
        row["findings"] = find_caveats(row, rules=rules)
    return row


def _pool(timings: Sequence[Timing], rules: MeasurementRules) -> Timing | None:
    return pool_timings(timings, width=rules.width) if timings else None


def _compute_largest(memories: Sequence[MemoryRecord]) -> MemoryRecord | None:
    """Return the maximum of each value over all processes; None without any."""
    known = {}
    for name in ("device_peak_bytes", "host_peak_bytes", "host_growth_bytes"):
        values = (cast("int | None", one.get(name)) for one in memories)
        known[name] = max((value for value in values if value is not None), default=None)
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
    rows: list[RowRecord] = []
    for row in document["rows"]:
        limit, sentence = find_bottleneck(row, fixed_s=fixed_s.get(row["precision"]))
        findings = [*row["findings"], sentence] if sentence else row["findings"]
        rows.append(row | {"limit": limit, "findings": findings})
    failed = [row["batch_size"] for row in rows if row["status"] == "out_of_memory" and row["batch_size"]]
    fitted = [size for row in rows if row["status"] == "measured" and (size := row["batch_size"])]
    return document | {
        "rows": rows,
        "splits": splits,
        "largest_batch_size": {"fitted": max(fitted, default=None), "out_of_memory_at": min(failed, default=None)},
    }


def _compute_splits(rows: Sequence[RowRecord]) -> Iterator[dict[str, Any]]:
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


# --- caveats of a measurement and its bottleneck ---------------------------------------------------------------

DRIFT = 0.03  # relative change of the median over time, or deviation between processes [-]
SPREAD = 0.10
INPUT_SHARE = 0.25  # share of a fit() step outside the compiled step above which input is the bottleneck [-]
LOADING_SHARE = 0.5  # pipeline time per fit() step above which input is the bottleneck [-]
HOST_SHARE = 0.5  # share of a step independent of the batch size above which it is launch-bound [-]


def find_caveats(row: RowRecord, *, rules: MeasurementRules) -> list[str]:
    """Return the caveats of a measured row."""
    fit, load = row["fit"], row.get("load")
    found = [_describe_load(load)] if load is not None and load["other_share"] >= OTHERS_SHARE else []
    if fit is None or fit.get("median_s") is None:
        return [*found, "too few steps to measure: provide more data, or use a smaller batch"]
    spread = fit.get("spread")
    if spread is None:
        return [*found, "too few steps for windows: no confidence interval is available"]
    if fit["warm_up"]["settled"] is False:
        found.append(
            f"the warm-up did not settle within {rules.warm_up_s:g} s: check for other load, or thermal throttling"
        )
    if fit["stopped"] == "time" and (fit["width"] is None or fit["width"] > rules.width):
        found.append(_describe_imprecision(fit, rules))
    if abs(fit["drift"]) > DRIFT:
        found.append(
            f"unsteady: the second half took {1 + fit['drift']:.3f} times the time of the first: "
            f"clocks or temperature changed"
        )
    if compute_process_spread(fit) > DRIFT:
        medians_s = fit["process_medians_s"]
        low_ms, high_ms = (end * MS_PER_S for end in (min(medians_s), max(medians_s)))
        found.append(
            f"unsteady: {len(medians_s)} processes took {low_ms:.3g} to {high_ms:.3g} ms per step: "
            f"a run may take any time in this range"
        )
    if spread > SPREAD:
        found.append(f"unsteady: half of the windows differ by more than {spread:.0%} of the median")
    return found


def _describe_load(load: LoadRecord) -> str:
    share, most = f"{100 * load['other_share']:.0f} %", load["most"]
    if load["stolen_cores"] > load["other_cores"] / 2:
        return (
            f"unsteady: other guests of the hypervisor used {share} of the CPU; "
            f"try again later, or on another machine"
        )
    if not most:
        return f"unsteady: short-lived processes used {share} of the CPU; try again when it is idle"
    name = most[0]["name"]
    who = f"`{name}` (process {most[0]['pid']})" if len(most) == 1 else f"`{name}` and others"
    return f"unsteady: another process used {share} of the CPU: {who}; try again when it has ended"


def _describe_imprecision(fit: Timing, rules: MeasurementRules) -> str:
    count = len(fit.get("process_medians_s") or ())
    after, flag = f"{rules.most_s:g} s", f"--max-time {4 * rules.most_s:g}"
    if count > 1:
        after, flag = f"{count} processes", f"--processes {2 * count}"
    if fit["width"] is None:
        return f"only {fit['windows']} windows fit into {after}: no interval is available; try `{flag}`"
    known = f"not known to {rules.width:.0%}: the 95 % interval of the median is {fit['width']:.1%}"
    return f"{known} wide after {after}; try `{flag}`"


def find_bottleneck(row: RowRecord, *, fixed_s: float | None) -> tuple[str | None, str]:
    """Return the bottleneck of a `fit()` step (`input`, `host`, `device`), and a sentence on it; None if unknown.

    `fixed_s` is the part of a step independent of the batch size; None if only one size was measured [s].
    """
    fit, step = row["fit"], row.get("step")
    fit_s = fit["median_s"] if fit else None
    step_s = step["median_s"] if step else None
    if fit_s is None:
        return None, ""
    if waits := _describe_input(row, fit_s, step_s):
        return "input", waits
    if fixed_s is None:
        return None, ""
    share = min(fixed_s / fit_s, 1.0)
    if share >= HOST_SHARE:
        return "host", (
            f"launch-bound: {share:.0%} of a step does not depend on the batch size; a larger batch is nearly "
            f"free, and a faster device gains little"
        )
    return "device", ""


def _describe_input(row: RowRecord, fit_s: float, step_s: float | None) -> str:
    pipeline = row.get("pipeline") or []
    rate = pipeline[0]["samples_per_s"] if pipeline else None
    batch_size = row["batch_size"]
    if rate is None or batch_size is None or batch_size / rate < LOADING_SHARE * fit_s:
        return ""
    if step_s is None:
        return f"input-bound: the data arrives at {rate:.0f} samples/s, and the step without it was not timed"
    if fit_s - step_s < INPUT_SHARE * fit_s:
        return ""
    return (
        f"input-bound: the data arrives at {rate:.0f} samples/s, the step could take {batch_size / step_s:.0f}; "
        f"make the loader faster, or cache its output"
    )

"""Predicted memory compared with XLA's memory analysis and with batches that ran or failed.

Three kinds of evidence. ``xla``: `memory_analysis()` of the step that Keras compiles (``profiles/xla_memory.csv``,
made by ``benchmarks/xla_memory.py``). ``limits``: PROFET measured every network at 16 to 256 samples on four GPUs;
where the larger ones are missing, they did not fit: the largest batch that ran must fit, the next must not.
``ran``: steps of all other publishers at the largest batch of each, where it takes most of the memory; nothing was
adjusted to these, and steps whose weights were sharded are left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from statistics import fmean, median
from typing import Any

from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.memory import TIGHT_FROM, MemoryVerdict, available_bytes, compute_batch_bytes, memory_verdict
from gpuplan.predict.measured_run import load_measured_workload
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.predict.run_config import compute_memory_pressure
from gpuplan.predict.xla_recomputation import XLA_SHARE, compute_recomputed_bytes
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Memory
from gpuplan.workload.options import WorkloadOptions

from .dataset import read_published_file
from .kernel_store import build_run_key, load_store
from .multi_device.data import SHARDED

SCHEMA = "gpuplan.accuracy-memory/1"
RECORD = "memory.json"  # beside the other profiles
NOISE_POINTS = 0.01  # of the median error: what another version of Keras or JAX may change

GRID = (16, 32, 64, 128, 256)  # PROFET's batches
TRACED = 64  # memory of its networks is traced at this batch, and scaled
FROM_PRESSURE = 0.75  # least share of the memory that a step of ``ran`` takes, as its packaged trace has it
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaComparison:
    """Predicted and XLA's memory of a step: arguments, temporaries, results that replace no argument [bytes]."""

    model: str
    batch_size: int
    precision: str
    accelerator: str
    stated_bytes: int
    predicted_bytes: int

    @property
    def error(self) -> float:
        """Predicted over stated, less one [-]."""
        return self.predicted_bytes / self.stated_bytes - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """Verdict on one batch that ran or failed."""

    model: str
    batch_size: int
    precision: str
    accelerator: str
    source: str
    ran: bool
    needed_share: float
    verdict: str

    @property
    def is_right(self) -> bool:
        """Whether the verdict is "fits" exactly for steps that ran."""
        return (self.verdict != "does not fit") is self.ran


def build_memory_scores(progress: Progress) -> dict[str, Any]:
    """Return all three kinds of evidence with their summaries: what `python -m lab accuracy --memory` prints."""
    stated, limits, runs = (
        compare_with_xla(progress),
        compare_batch_limits(progress),
        compare_published_runs(progress),
    )
    return {
        "xla": {
            "summary": _stated_summary(stated),
            "rows": [{**asdict(one), "error": round(one.error, 4)} for one in stated],
        },
        **{name: _judged_json(rows) for name, rows in (("limits", limits), ("ran", runs))},
    }


def compare_with_xla(progress: Progress, *, rows: Iterable[dict[str, str]] | None = None) -> list[XlaComparison]:
    """Return the comparison with XLA for all recorded steps, or for some rows.

    UsageError outside of a clone: the models of these steps are not installed.
    """
    folder = Path(str(resources.files("gpuplan.profiles")))
    if rows is None:
        rows = csv.DictReader((folder / "xla_memory.csv").read_text(encoding="utf-8").splitlines())
    return [_stated(row, folder.parent, progress) for row in rows]


def _stated(row: dict[str, str], base: Path, progress: Progress) -> XlaComparison:
    progress(row["model"])
    file = row["model"].split(":")[0]
    if file.endswith(".py") and not (base / file).is_file():
        hint = "`python -m lab accuracy --memory --recorded` prints what was computed last"
        raise UsageError(f"`{file}` is only in a clone of the repository, installed with `-e`", hint=hint)
    options = WorkloadOptions(batch_size=int(row["batch_size"]), precision=row["precision"])
    workload = load_workload(row["model"], options=options, base=base)
    recomputed = compute_recomputed_bytes(
        workload, load_catalog().accelerators[row["target"]], pool_share=XLA_SHARE
    )
    part = {name: int(row[f"{name}_bytes"]) for name in ("argument", "temp", "output", "alias")}
    return XlaComparison(
        model=row["model"],
        batch_size=int(row["batch_size"]),
        precision=row["precision"],
        accelerator=row["target"],
        stated_bytes=part["argument"] + part["temp"] + part["output"] - part["alias"],
        predicted_bytes=workload.memory.compute_fixed_bytes(compiled=workload.compiled)
        + compute_batch_bytes(workload)
        - recomputed,
    )


def compare_batch_limits(progress: Progress) -> list[BatchVerdict]:
    """Return each largest batch that PROFET ran on images of 224 and 256 pixels, and the next that it did not."""
    largest: dict[tuple[str, str], Measurement] = {}
    for m in read_published_file("profet_keras_aws"):
        if "image_size=224" in m.model or "image_size=256" in m.model:
            known = largest.setdefault((m.model, m.accelerator), m)
            largest[m.model, m.accelerator] = max(known, m, key=lambda one: one.batch_size)
    memories: dict[str, Memory] = {}
    accelerators, judged = load_catalog().accelerators, []
    for (model, name), m in sorted(largest.items(), key=lambda item: item[0]):
        if model not in memories:
            progress(model)
            memories[model] = load_workload(model, options=WorkloadOptions(batch_size=TRACED), base=m.base).memory
        following = [(batch, False) for batch in GRID if batch > m.batch_size][:1]
        for batch, ran in [(m.batch_size, True), *following]:
            memory = memories[model]
            grows = memory.input_bytes + memory.activations_bytes(compiled=False)
            verdict = _verdict(memory, grows * batch // TRACED, batch, accelerators[name], compiled=False)
            judged.append(_judged(m, batch, ran, verdict))
    return judged


def compare_published_runs(progress: Progress, *, from_pressure: float = FROM_PRESSURE) -> list[BatchVerdict]:
    """Return the step of each network, GPU and precision that takes the most memory, of all other publishers.

    Args:
        progress: Is told what is traced.
        from_pressure: Least share of the memory that it takes [-].
    """
    accelerators, judged = load_catalog().accelerators, []
    for m in _heaviest(from_pressure, accelerators):
        progress(m.model)
        memory = load_measured_workload(m).memory
        batch_bytes = memory.input_bytes + memory.activations_bytes(
            compiled=m.compiled, recompute=m.recompute > 0.0
        )
        chip = accelerators[m.accelerator]
        verdict = _verdict(memory, batch_bytes, m.batch_size, chip, compiled=m.compiled)
        judged.append(_judged(m, m.batch_size, True, verdict))
    return judged


def _heaviest(from_pressure: float, accelerators: dict[str, Accelerator]) -> list[Measurement]:
    traces = load_store()
    most: dict[tuple[str, ...], tuple[float, Measurement]] = {}
    for m in load_published_measurements():
        chip = accelerators.get(m.accelerator)
        told = m.mode == "train" and m.origin != "profet_keras_aws" and m.distribution not in SHARDED
        if not told or chip is None or chip.kind != "gpu" or build_run_key(m) not in traces:
            continue
        pressure = compute_memory_pressure(traces[build_run_key(m)].memory_bytes, chip)
        key = (m.origin, m.model, m.accelerator, m.precision, str(m.compiled))
        if pressure >= max(from_pressure, most.get(key, (0.0, m))[0]):
            most[key] = (pressure, m)
    return [m for _, m in most.values()]


def _verdict(
    memory: Memory, batch_bytes: int, batch_size: int, chip: Accelerator, *, compiled: bool
) -> MemoryVerdict:
    return memory_verdict(
        fixed_bytes=memory.compute_fixed_bytes(compiled=compiled),
        batch_bytes=batch_bytes,
        batch_size=batch_size,
        available_bytes=available_bytes(memory_gib=chip.memory_gib, usable_gib=chip.usable_gib),
    )


def _judged(m: Measurement, batch_size: int, ran: bool, verdict: MemoryVerdict) -> BatchVerdict:
    share = verdict.needed_bytes / verdict.available_bytes if verdict.available_bytes else 0.0
    return BatchVerdict(
        model=m.model,
        batch_size=batch_size,
        precision=m.precision,
        accelerator=m.accelerator,
        source=m.origin,
        ran=ran,
        needed_share=round(share, 4),
        verdict=verdict.verdict or "unknown",
    )


def load_recorded_memory() -> dict[str, Any]:
    """Return the packaged record."""
    record = json.loads((resources.files("gpuplan.profiles") / RECORD).read_text(encoding="utf-8"))
    return {name: record[name] for name in ("xla", "limits", "ran")}


def find_memory_regressions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each summary that is worse than in a record."""
    lines = []
    old, new = before["xla"]["summary"], now["xla"]["summary"]
    if new["median_ape"] > old["median_ape"] + NOISE_POINTS:
        lines.append(f"xla: median_ape was {old['median_ape']}, is {new['median_ape']}")
    if new["beyond_margin"] > old["beyond_margin"]:
        lines.append(f"xla: {new['beyond_margin']} steps need more than the margin allows for")
    for name in ("limits", "ran"):
        earlier, wrong = (b[name]["summary"]["n"] - b[name]["summary"]["right"] for b in (before, now))
        if wrong > earlier:
            lines.append(f"{name}: {earlier} verdicts were wrong, {wrong} are")
    return lines


def _stated_summary(rows: Sequence[XlaComparison]) -> dict[str, Any]:
    errors = [one.error for one in rows]
    return {
        "n": len(rows),
        "models": len({one.model for one in rows}),
        "median_ape": round(median(map(abs, errors)), 4),
        "mean_ape": round(fmean(map(abs, errors)), 4),
        "lowest": round(min(errors), 4),
        "highest": round(max(errors), 4),
        "beyond_margin": sum(error + 1.0 < TIGHT_FROM for error in errors),
    }


def _judged_json(rows: Sequence[BatchVerdict]) -> dict[str, Any]:
    chips = sorted({one.accelerator for one in rows})
    return {
        "summary": _count(rows),
        "by_accelerator": {chip: _count([one for one in rows if one.accelerator == chip]) for chip in chips},
        "rows": [{**asdict(one), "right": one.is_right} for one in rows],
    }


def _count(rows: Sequence[BatchVerdict]) -> dict[str, int]:
    ran = [one for one in rows if one.ran]
    return {
        "n": len(rows),
        "right": sum(one.is_right for one in rows),
        "ran": len(ran),
        "ran_right": sum(one.is_right for one in ran),
    }

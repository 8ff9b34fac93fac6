"""Compiled steps against published ones that XLA compiled too: fits what the compilers leave out, and scores it.

    pip install -e '.[tpu-compile,cuda-compile]'
    python benchmarks/compiled_rows.py tpu            # about three minutes; what was compiled is kept
    python benchmarks/compiled_rows.py cuda --seconds 500       # goes on where it stopped
    python benchmarks/compiled_rows.py --write        # profiles/compiled.json from everything that was compiled

A constant over the compiler's estimate is kept only where it makes rows better whose network (`family`) was left
out. `--write` also writes every row to benchmarks/results/compiled_rows.json; a platform of which nothing was
compiled stays as it was. What the compilers made is kept in compiled_programs.json.gz beside it, so that other
coefficients need no other compilation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.files import write_atomically
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.predict.coefficients import LAST_YEAR, load_coefficients
from gpuplan.predict.compile.compiled import CompiledStep, CompileFault, parse_result, result_to_json
from gpuplan.predict.compile.cuda import compute_gpu_parts_s
from gpuplan.predict.compile.targets import CompileTarget, find_target
from gpuplan.predict.compile.tpu import LINK_SHARE, compute_core_s
from gpuplan.predict.compile.worker import CompileLimits, compile_step
from gpuplan.predict.device.accelerator_limits import compute_limits, find_generation
from gpuplan.predict.kernels.executed_ops import list_array_sweeps
from gpuplan.predict.kernels.table import Kernel, build_kernel_table
from gpuplan.predict.library_kernels import find_converted_dtypes, find_unfused_parts
from gpuplan.predict.measured_run import TracedRun
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.predict.modelled_step import model_step
from gpuplan.predict.multi_device.collectives import ring_all_reduce_s
from gpuplan.predict.multi_device.data_parallel import load_parallel_coefficients
from gpuplan.predict.run_config import (
    compute_memory_pressure,
    find_software_year,
    find_wait_factor,
    is_fed_from_host,
)
from gpuplan.units import GIB, GIGA, MEGA
from gpuplan.workload.build.lowering import load_or_lower_step
from gpuplan.workload.options import WorkloadOptions, get_keras_policy

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.kernel_store import build_run_key, load_store
from lab.multi_device.data import pair_measurements
from lab.multi_device.fit import predict_pair_s
from lab.quantiles import weighted_quantile

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "profiles" / "compiled.json"
RESULTS = ROOT / "benchmarks" / "results" / "compiled_rows.json"
PROGRAMS = ROOT / "benchmarks" / "results" / "compiled_programs.json.gz"
LIMITS = CompileLimits(seconds=1800.0)  # a machine may be shared with other work
TWINS = (("V100-16GB", "V100-32GB"),)  # equal but for their memory, the smaller first
FITS = 0.8  # of the smaller's memory: below it XLA changes nothing to save memory


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A published step with its compiled parts; `rest_s` is not scaled by any constant [s]."""

    measurement: Measurement
    platform: str
    compiled_s: float
    rest_s: float
    modelled_s: float
    compile_s: float

    @property
    def ratio(self) -> float:
        """Measured over compiled, of the work on the device."""
        return max(self.measurement.step_s - self.rest_s, 1e-6) / self.compiled_s


def suitable(platform: str) -> list[Measurement]:
    """Return published training steps that XLA compiled: each setting once, with the median of its rows.

    Passes that only add to gradients (accumulation) are left out, and steps whose updates XLA left alone: what is
    compiled is the whole step.
    """
    catalog, found = load_catalog(), {}
    for m in load_published_measurements():
        accelerator = catalog.accelerators.get(m.accelerator)  # not a CPU's
        target = None if accelerator is None else find_target(accelerator)
        if target is None or target.platform != platform or not m.compiled or m.mode != "train":
            continue
        usual = (
            m.work == "train" and not m.recompute and (m.accumulation or 1) == 1 and not find_unfused_parts(m)
        )
        if usual and (m.devices == 1 or platform == "tpu"):
            key = (m.model, m.batch_size, m.accelerator, m.precision, m.source if platform == "tpu" else "")
            found.setdefault(key, []).append(m)
    return [replace(rows[0], step_s=statistics.median(m.step_s for m in rows)) for rows in found.values()]


def in_order(rows: list[Measurement]) -> list[Measurement]:
    """Return rows so that every network comes once before any comes twice, those of few kernels first."""
    kernels = {id(m): sum(kernel.count for kernel in load_store()[build_run_key(m)].kernels) for m in rows}
    turns: dict[str, int] = {}
    ordered = []
    for m in sorted(rows, key=lambda m: (kernels[id(m)], m.batch_size)):
        turns[m.architecture] = turns.get(m.architecture, 0) + 1
        ordered.append((turns[m.architecture], kernels[id(m)], m))
    return [m for *_, m in sorted(ordered, key=lambda each: each[:2])]


def name_of(m: Measurement) -> str:
    """Return the key of a compilation: V100s of 16 and 32 GB differ only in memory.

    What was compiled for one is taken for the other only where the step fits in the smaller (`known`).
    """
    return f"{m.model} {m.batch_size} {get_keras_policy(m.precision)} {m.accelerator} {m.devices}"


def programs() -> dict[str, Any]:
    """Return the compilation results by key (`name_of`)."""
    return json.loads(gzip.decompress(PROGRAMS.read_bytes())) if PROGRAMS.exists() else {}


def known(m: Measurement, kept: dict[str, Any]) -> CompiledStep | None:
    """Return the compilation result of a row, or of its twin with another memory size."""
    found = kept.get(name_of(m))
    for one, other in TWINS:
        if found is None and m.accelerator in (one, other):
            twin = one if m.accelerator == other else other
            found = kept.get(name_of(replace(m, accelerator=twin)))
            small = load_catalog().accelerators[one].memory_gib or 0.0
            found = None if found is not None and found["needed_bytes"] > FITS * small * GIB else found
    result = None if found is None else parse_result(found)
    return result if isinstance(result, CompiledStep) else None


def compile_row(m: Measurement) -> tuple[CompileTarget, CompiledStep | CompileFault]:
    """Compile a published step; a core's share of it on a TPU."""
    target = find_target(load_catalog().accelerators[m.accelerator])
    assert target is not None
    options = WorkloadOptions(
        batch_size=m.batch_size // target.cores, precision=get_keras_policy(m.precision)
    )
    lowered = load_or_lower_step(m.model, options=options, platform=target.platform, base=m.base)
    return target, compile_step(lowered.path, digest=lowered.digest, target=target, limits=LIMITS)


def score(m: Measurement, target: CompileTarget, result: CompiledStep) -> Scored:
    """Return a row's step, as compiled without a constant, and as modelled."""
    accelerator, traced = load_catalog().accelerators[m.accelerator], load_store()[build_run_key(m)]
    compiled_s, rest_s = (_tpu_s if target.platform == "tpu" else _gpu_s)(m, target, result, accelerator)
    return Scored(
        measurement=m,
        platform=target.platform,
        compiled_s=compiled_s,
        rest_s=rest_s,
        modelled_s=modelled_s(m, accelerator, traced),
        compile_s=result.compile_s,
    )


def _tpu_s(
    m: Measurement, target: CompileTarget, result: CompiledStep, accelerator: Accelerator
) -> tuple[float, float]:
    link = (accelerator.ici_gbit_per_s_per_direction or 0.0) / 8.0 * GIGA * LINK_SHARE
    exchange_s = ring_all_reduce_s(
        message_bytes=load_store()[build_run_key(m)].gradient_bytes,
        devices=m.devices * target.cores,
        link_bytes_per_s=link,
    )
    busy_s = compute_core_s(cycles=result.total_cycles, clock_hz=(accelerator.boost_mhz or 0.0) * MEGA)
    return busy_s * find_wait_factor(m), exchange_s * find_wait_factor(m)


def _gpu_s(
    m: Measurement, target: CompileTarget, result: CompiledStep, accelerator: Accelerator
) -> tuple[float, float]:
    traced = load_store()[build_run_key(m)]
    parts = compute_gpu_parts_s(
        (*result.kernels, *beside_update(m, traced)),
        accelerator,
        precision=m.precision,
        needed_bytes=result.needed_bytes,
        input_bytes=float(traced.input_bytes) if is_fed_from_host(m) else 0.0,
        slowdown=1.0,
        stack=m.stack,
        software_year=find_software_year(m),
    )
    assert isinstance(parts, dict)
    return sum(parts.values()), 0.0


def beside_update(m: Measurement, traced: TracedRun) -> list[dict[str, Any]]:
    """Return the sweeps over gradients, weights and batch that the compiled Keras step lacks."""
    swept = (
        Kernel(
            category="stream",
            dtype="float32",
            count=sweep.times,
            flops=0.0,
            bytes_moved=float(
                (sweep.read + sweep.written) * (traced.input_bytes if sweep.inputs else traced.gradient_bytes)
            ),
        )
        for sweep in list_array_sweeps(m)
    )
    return [kernel._asdict() for kernel in swept]


def modelled_s(m: Measurement, accelerator: Accelerator, traced: TracedRun) -> float:
    """Return the step as the model of its trace has it, on all devices [s]."""
    table = build_kernel_table(traced.kernels, converted=find_converted_dtypes(m, accelerator))
    chip: Any = compute_limits(accelerator, table=table, precision=m.precision)
    step = model_step(
        table,
        chip,
        load_coefficients(),
        generation=find_generation(accelerator),
        stack=m.stack,
        host=m.stack,
        year=accelerator.year or LAST_YEAR,
        compiled=True,
        input_bytes=float(traced.input_bytes) if is_fed_from_host(m) else 0.0,
        pressure=compute_memory_pressure(traced.memory_bytes, accelerator, share=1.0),
        software_year=find_software_year(m),
    )
    pairs, _ = pair_measurements([m], {accelerator.name: accelerator}, single_s_of=lambda _: step.total_s)
    together_s = (
        predict_pair_s(pairs[0], load_parallel_coefficients()[pairs[0].form]) if pairs else step.total_s
    )
    return together_s * find_wait_factor(m)


# --- fit and report ---------------------------------------------------------------------------------------


def slowdown_of(rows: list[Scored]) -> float:
    """Return the median over families of the median ratio in each."""
    families: dict[str, list[float]] = {}
    for row in rows:
        families.setdefault(row.measurement.family, []).append(math.log(row.ratio))
    return math.exp(statistics.median(map(statistics.median, families.values())))


def validation(rows: list[Scored]) -> Iterator[tuple[Scored, float]]:
    """Yield every row with log(measured / predicted), constants fitted without its network."""
    for row in rows:
        others = [other for other in rows if other.measurement.family != row.measurement.family]
        slowdown = slowdown_of(others) if others else 1.0
        predicted_s = row.compiled_s * slowdown + row.rest_s
        yield row, math.log(row.measurement.step_s / predicted_s)


def report(rows: list[Scored]) -> dict[str, Any]:
    """Print every row and return the constants with what they rest on."""
    errors = list(validation(rows))
    for row, log in errors:
        m = row.measurement
        name = (
            f"{m.model.split(':')[-1].split('?')[0]} {m.batch_size} {m.precision} {m.devices}x{m.accelerator}"
        )
        print(
            f"{name:56} measured {m.step_s * 1e3:8.1f}  compiled {m.step_s / math.exp(log) * 1e3:8.1f} "
            f"({math.expm1(-log):+.0%})  raw {(row.compiled_s + row.rest_s) * 1e3:8.1f}  "
            f"modelled {row.modelled_s * 1e3:8.1f} ({row.modelled_s / m.step_s - 1:+.0%})  {row.compile_s:.0f} s"
        )
    fitted = mean_error([log for _, log in errors])
    raw_logs = [math.log(r.measurement.step_s / (r.compiled_s + r.rest_s)) for r in rows]
    raw, modelled = (
        mean_error(raw_logs),
        mean_error([math.log(r.measurement.step_s / r.modelled_s) for r in rows]),
    )
    print(
        f"{len(rows)} rows: mean error raw {raw:.1%}, with a constant {fitted:.1%}, modelled {modelled:.1%}"
    )
    useful = fitted < raw
    logs = [log for _, log in errors] if useful else raw_logs
    return {
        "slowdown": round(slowdown_of(rows), 4) if useful else 1.0,
        "fixed_s": 0.0,
        "interval": [round(weighted_quantile(logs, [1.0] * len(logs), p), 4) for p in (0.1, 0.9)],
        "fitted_on": {
            "rows": len(rows),
            "families": sorted({row.measurement.family for row in rows}),
            "mean_error": round(min(raw, fitted), 4),
            "mean_error_raw": round(raw, 4),
            "mean_error_modelled": round(modelled, 4),
            "accelerators": sorted({row.measurement.accelerator for row in rows}),
        },
    }


def mean_error(logs: list[float]) -> float:
    """Return the mean of |predicted / measured - 1| of log(measured / predicted)."""
    return statistics.mean(abs(math.expm1(-log)) for log in logs)


UNCHECKED = {"slowdown": 1.0, "fixed_s": 0.0, "interval": [-0.5, 0.5]}
FEWEST = 6  # networks on which constants and an interval are based [-]


def constants_of(rows: list[Scored]) -> dict[str, Any]:
    """Return the entry of a platform in `profiles/compiled.json`: assumed if too few networks were compiled."""
    found = report(rows)
    families = found["fitted_on"]["families"]
    if len(families) >= FEWEST:
        return found
    errors = {name: value for name, value in found["fitted_on"].items() if name.startswith("mean_error")}
    note = (
        f"assumed: {len(rows)} published rows of {len(families)} networks are too few to base an interval on"
    )
    return {**UNCHECKED, "fitted_on": {"rows": 0, "note": note, **errors}}


def row_json(row: Scored) -> dict[str, Any]:
    """Return a row as it is published: milliseconds, and errors without a constant [%]."""
    m, compiled_s = row.measurement, row.compiled_s + row.rest_s
    return {
        "model": m.model,
        "batch_size": m.batch_size,
        "precision": m.precision,
        "accelerator": m.accelerator,
        "devices": m.devices,
        "measured_ms": round(m.step_s * 1e3, 2),
        "compiled_ms": round(compiled_s * 1e3, 2),
        "modelled_ms": round(row.modelled_s * 1e3, 2),
        "compiled_error": round(compiled_s / m.step_s - 1, 3),
        "modelled_error": round(row.modelled_s / m.step_s - 1, 3),
        "source": m.source,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("platforms", nargs="*", choices=["tpu", "cuda", []], help="what to compile for")
    parser.add_argument("--only", default="", help="rows whose model holds this text")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no row after so long")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true", help="write profiles/compiled.json")
    arguments = parser.parse_args()
    kept = programs()
    started_s = time.monotonic()
    for platform in arguments.platforms or ("tpu", "cuda"):
        for m in in_order(suitable(platform)):
            wanted = arguments.only in f"{m.model} {m.batch_size} {m.accelerator} {m.precision}"
            if arguments.list and wanted:
                print(platform, name_of(m), "known" * (known(m, kept) is not None))
            elif arguments.platforms and wanted and known(m, kept) is None:
                if time.monotonic() - started_s > arguments.seconds:
                    break
                _compile_and_keep(m, kept)
    if not arguments.list:
        _finish(kept, write=arguments.write)
    return 0


def _compile_and_keep(m: Measurement, kept: dict[str, Any]) -> None:
    started_s = time.monotonic()
    try:
        _, result = compile_row(m)
    except GpuplanError as error:
        result = CompileFault(kind="failed", message=str(error))
    said = result if isinstance(result, CompileFault) else f"{result.compile_s:.1f} s"
    print(f"{name_of(m)}: {said}, all in all {time.monotonic() - started_s:.0f} s", flush=True)
    if isinstance(result, CompiledStep):
        kept[name_of(m)] = result_to_json(result)
        write_atomically(
            PROGRAMS, gzip.compress(json.dumps(kept, sort_keys=True, indent=0).encode(), mtime=0)
        )


def _finish(kept: dict[str, Any], *, write: bool) -> None:
    catalog, platforms, every, listed = load_catalog(), {}, [], set()
    for platform in ("tpu", "cuda"):
        rows = []
        for m in suitable(platform):
            listed.add(m.source)
            result, target = known(m, kept), find_target(catalog.accelerators[m.accelerator])
            if result is not None and target is not None:
                rows.append(score(m, target, result))
        every += rows
        if rows:
            platforms[platform] = constants_of(rows)
    if write:
        written = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
        untouched = [row for row in written if _platform_of(row["accelerator"]) not in platforms]
        before = sum(row["source"] in listed for row in written if row not in untouched)
        if len(every) < before:
            raise SystemExit(
                f"{len(every)} rows are compiled here and {before} were: compile the others first"
            )
        constants = json.loads(OUTPUT.read_text())["platforms"] | platforms
        data = {"schema": "gpuplan.compiled-constants/1", "platforms": constants}
        OUTPUT.write_text(json.dumps(data, indent=2) + "\n")
        lines = ",\n".join(json.dumps(row) for row in (*untouched, *map(row_json, every)))
        RESULTS.write_text(f'{{"rows": [\n{lines}\n]}}\n')


def _platform_of(accelerator: str) -> str:
    target = find_target(load_catalog().accelerators[accelerator])
    return "" if target is None else target.platform


if __name__ == "__main__":
    sys.exit(main())

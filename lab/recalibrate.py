"""Rebuild all packaged calibration files from the published rows and the tracer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuplan.files import write_atomically
from gpuplan.offers.rows import Accelerator
from gpuplan.predict.measured_run import TracedRun, load_measured_workload
from gpuplan.predict.measurements import Measurement
from gpuplan.records import to_plain

from .calibrate import build_measured_index, calibrate, is_plain_fit, select_single_gpu_rows
from .dataset import build_samples, trace_runs
from .kernel_store import build_run_key, encode_store
from .multi_device.data import find_packaged_facts, index_scaling_facts, pair_measurements, scaling_facts_to_json
from .multi_device.fit import fit_exchange_forms, parallel_to_json
from .transfer_score import error_model_to_json, fit_error_model

FORMAT = "gpuplan.efficiency/10"
Progress = Callable[[str], None]

# Files by what they hold, in the order in which they depend on one another.
PARTS: Mapping[str, str] = {
    "published/kernels.json.gz": "kernels of every published run",
    "gradients.json": "what several devices have to exchange",
    "efficiency.json": "coefficients and intervals",
    "measured_steps.json": "look-up of measured steps",
    "transfer.json": "how errors carry over between accelerators",
    "parallel.json": "constants of several devices",
}


def rebuild_profiles(
    corpus: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    progress: Progress,
    part: Progress = lambda _: None,
    retrace: bool = False,
) -> dict[str, bytes]:
    """Return the content of every file in `PARTS`, by name.

    Args:
        corpus: All published rows.
        accelerators: The catalog's, by name.
        progress: Is told what is being worked on.
        part: Is told which file is begun.
        retrace: Trace every model again, as after a change of the tracer; else only those that are new.
    """
    traces, gradients, found = rebuild_traces(corpus, progress=progress, part=part, retrace=retrace)
    part("efficiency.json")
    samples = build_samples(select_single_gpu_rows(corpus), accelerators, progress=progress, known=traces)
    calibration = calibrate(samples, accelerators, progress=progress)
    found["efficiency.json"] = _json({"schema": FORMAT, **to_plain(calibration.coefficients)}, indent=2)
    part("measured_steps.json")
    found["measured_steps.json"] = _json(build_measured_index(corpus, traces))
    part("transfer.json")
    transfer = fit_error_model(calibration.models, calibration.fitted, keep=is_plain_fit)
    found["transfer.json"] = _json(error_model_to_json(transfer))
    part("parallel.json")
    pairs, _ = pair_measurements(corpus, accelerators, facts=index_scaling_facts(gradients))
    found["parallel.json"] = _json(parallel_to_json(fit_exchange_forms(pairs)), indent=2)
    return found


def rebuild_traces(
    corpus: Sequence[Measurement], *, progress: Progress, part: Progress = lambda _: None, retrace: bool = False
) -> tuple[dict[str, TracedRun], dict[str, Any], dict[str, bytes]]:
    """Return the kernels of every run, the gradients, and the content of the two files that hold them.

    Nothing is fitted: after rows were added, only their runs are traced and joined to those that are packaged.
    ``write_profiles(rebuild_traces(load_published_measurements(), progress=print)[2], Path("profiles"))``

    Args:
        corpus: All published rows; traces of no other runs are kept.
        progress: Is told what is being traced.
        part: Is told which file is begun.
        retrace: Trace every model again.
    """
    kernels, exchanged = "published/kernels.json.gz", "gradients.json"
    part(kernels)
    traces = _traces(corpus, retrace=retrace, progress=progress)
    part(exchanged)
    several = [m for m in corpus if m.mode == "train" and m.devices > 1]
    gradients = scaling_facts_to_json(
        several, load_measured_workload, known=(lambda _: None) if retrace else find_packaged_facts
    )
    return traces, gradients, {kernels: encode_store(traces), exchanged: _rows_apart(gradients)}


def _traces(corpus: Sequence[Measurement], *, retrace: bool, progress: Progress) -> dict[str, TracedRun]:
    """Return traces of what ran on accelerators, and of nothing else; CPUs are not modelled by kernels."""
    rows = [m for m in corpus if m.accelerator != "CPU"]
    traces = trace_runs(rows, progress=progress, known={} if retrace else None)
    return {key: traces[key] for key in map(build_run_key, rows)}


def _json(data: Any, *, indent: int | None = None) -> bytes:
    return (json.dumps(data, indent=indent) + "\n").encode()


def _rows_apart(gradients: Mapping[str, Any]) -> bytes:
    """Return facts with one row a line, so that a change can be read."""
    rows = ",\n".join(json.dumps(row) for row in gradients["facts"])
    return f'{{"schema": {json.dumps(gradients["schema"])}, "facts": [\n{rows}\n]}}\n'.encode()


def write_profiles(files: Mapping[str, bytes], folder: Path) -> None:
    """Write all files, each whole or not at all; nothing is written before everything is there to be written."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, data)

"""Everything that is made of the published rows and of the tracer, made anew together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..offers.rows import Accelerator
from ..predict.measurements import Measurement
from .calibrate import calibrate, is_plain_fit, measured_index, rows_of_one_gpu
from .dataset import examples_of, traces_of, workload_of
from .inference_intervals import inference_ends, inference_to_json
from .kernel_store import Traced, packed_store, run_key
from .multi_device_data import facts_in, facts_to_json, packaged_facts, pairs_of
from .multi_device_fit import calibrate_parallel, parallel_to_json
from .transfer_score import fit_transfer

__all__ = ["PARTS", "profiles_anew", "write_profiles"]

Progress = Callable[[str], None]

# Files by what they hold, in the order in which they depend on one another.
PARTS: Mapping[str, str] = {
    "published/kernels.json.gz": "kernels of every published run",
    "gradients.json": "what several devices have to exchange",
    "efficiency.json": "coefficients and intervals",
    "inference.json": "intervals of inference calls",
    "measured_steps.json": "look-up of measured steps",
    "transfer.json": "how errors carry over between accelerators",
    "parallel.json": "constants of several devices",
}


def profiles_anew(
    corpus: Sequence[Measurement], accelerators: Mapping[str, Accelerator], *, progress: Progress,
    part: Progress = lambda _: None, retrace: bool = False,
) -> dict[str, bytes]:  # fmt: skip
    """Return the content of every file in `PARTS`, by name.

    Args:
        corpus: All published rows.
        accelerators: The catalog's, by name.
        progress: Is told what is being worked on.
        part: Is told which file is begun.
        retrace: Trace every model again, as after a change of the tracer; else only those that are new.
    """
    found: dict[str, bytes] = {}
    part("published/kernels.json.gz")
    traces = _traces(corpus, retrace=retrace, progress=progress)
    found["published/kernels.json.gz"] = packed_store(traces)
    part("gradients.json")
    several = [m for m in corpus if m.mode == "train" and m.devices > 1]
    gradients = facts_to_json(several, workload_of, known=(lambda _: None) if retrace else packaged_facts)
    found["gradients.json"] = _rows_apart(gradients)
    part("efficiency.json")
    examples = examples_of(rows_of_one_gpu(corpus), accelerators, progress=progress, known=traces)
    calibration = calibrate(examples, progress=progress)
    found["efficiency.json"] = _json(calibration.coefficients.to_json(), indent=2)
    part("inference.json")
    found["inference.json"] = _json(inference_to_json(inference_ends(calibration.sources)), indent=2)
    part("measured_steps.json")
    found["measured_steps.json"] = _json(measured_index(corpus, traces))
    part("transfer.json")
    transfer = fit_transfer(calibration.models, calibration.fitted, keep=is_plain_fit)
    found["transfer.json"] = _json(transfer.to_json())
    part("parallel.json")
    pairs, _ = pairs_of(corpus, accelerators, facts=facts_in(gradients))
    found["parallel.json"] = _json(parallel_to_json(calibrate_parallel(pairs)), indent=2)
    return found


def _traces(corpus: Sequence[Measurement], *, retrace: bool, progress: Progress) -> dict[str, Traced]:
    """Return traces of what ran on accelerators, and of nothing else; CPUs are not modelled by kernels."""
    rows = [m for m in corpus if m.accelerator != "CPU"]
    traces = traces_of(rows, progress=progress, known={} if retrace else None)
    return {key: traces[key] for key in map(run_key, rows)}


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
        write_whole(folder / name, data)

"""Fitting everything on the packaged measurements, and writing it down."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..offers.rows import Accelerator
from .cases import examples_of, workload_of
from .coefficients import Coefficients
from .corpus import Measurement
from .fit import fit
from .heldout import Example, HeldOut, interval_of, leave_out
from .kernels import kernels_of
from .measured import FORMAT as MEASURED_FORMAT
from .measured import fingerprint

__all__ = ["calibrate", "leave_out_accelerators", "leave_out_architectures", "measured_index"]

Progress = Callable[[str], None]

# Repeats of one PROFET workload on one instance spread by 1.25 % (coefficient of variation, median over the
# workloads; 90th percentile 3.9 %: nine repeats each, ddps-lab/profet@e69477fe6ea4). An 80 % interval of a
# normal distribution is 1.28 standard deviations wide; the 90th percentile is taken as the deviation.
REPEAT_NOISE = 0.039
MEASURED_LOG = math.log1p(1.28 * REPEAT_NOISE)


def leave_out_architectures(examples: Sequence[Example], *, progress: Progress) -> HeldOut:
    """Predict every model architecture by a fit that has not seen it."""
    return leave_out(examples, group_of=lambda e: e.measurement.architecture, progress=progress)


def leave_out_accelerators(examples: Sequence[Example], *, progress: Progress) -> HeldOut:
    """Predict every accelerator from its datasheet alone; a generation that only it had gets the mean."""
    return leave_out(examples, group_of=lambda e: family_of(e.measurement.accelerator), progress=progress)


def family_of(accelerator: str) -> str:
    """Return the accelerator without its memory size and form: what is left out together.

    Example:
        >>> family_of("V100-32GB"), family_of("A100-40GB-PCIe"), family_of("T4")
        ('V100', 'A100', 'T4')
    """
    return accelerator.split("-", maxsplit=1)[0]


def calibrate(
    measurements: Sequence[Measurement], accelerators: Mapping[str, Accelerator], *, progress: Progress
) -> Coefficients:
    """Fit on all measurements; take the intervals from the errors on what was left out."""
    examples = examples_of(measurements, accelerators, progress=progress)
    fitted = fit([example.case for example in examples])
    models = leave_out_architectures(examples, progress=progress)
    chips = leave_out_accelerators(examples, progress=progress)
    return Coefficients(
        generations=fitted.generations, shared=fitted.shared, stacks=fitted.stacks, hosts=fitted.hosts,
        intervals={
            "measured": (-MEASURED_LOG, MEASURED_LOG),
            "modelled": interval_of(models.log_ratios, models.groups),
            "datasheet": interval_of(chips.log_ratios, chips.groups),
        },
        fitted_on={
            "accelerators": sorted({m.accelerator for m in measurements}),
            "architectures": sorted({m.architecture for m in measurements}),
            "rows": len(measurements),
        },
    )  # fmt: skip


def measured_index(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return the look-up table of measured steps as plain JSON types."""
    sources: list[str] = []
    steps: dict[str, list[list[Any]]] = {}
    for m in measurements:
        source = m.source.rsplit(" (", 1)[0]
        if source not in sources:
            sources.append(source)
        row = [m.accelerator, float(f"{m.step_s:.6g}"), sources.index(source)]
        workload = workload_of(m)
        work = fingerprint(workload, kernels_of(workload.ops, compiled=workload.compiled))
        steps.setdefault(work, []).append(row)
    return {"schema": MEASURED_FORMAT, "sources": sources, "steps": dict(sorted(steps.items()))}


def write_json(path: Path, data: Any, *, indent: int | None = 2) -> None:
    """Write a JSON file by way of a temporary file beside it."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(data, indent=indent) + "\n")
    temporary.replace(path)

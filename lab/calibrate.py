"""Calibration: fit of all coefficients and intervals on the packaged measurements."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gpuplan.files import write_atomically
from gpuplan.offers.rows import Accelerator
from gpuplan.predict.coefficients import Coefficients, FittedCoefficients, HostCoefficients, StackCoefficients
from gpuplan.predict.measured_lookup import compute_fingerprint
from gpuplan.predict.measured_run import TracedRun
from gpuplan.predict.measurements import OWN, STACKS, Measurement
from gpuplan.predict.run_config import (
    KERAS_TORCH,
    KERAS_TORCH_LOOP,
    append_mode,
    name_run_kind,
    name_stack,
    name_user_stack,
)

from .cross_validation import CrossValidation, LabelledSample, assign_folds, cross_validate
from .fit import fit
from .interval_fit import FeaturedResidual, fit_interval_model
from .kernel_store import build_run_key

MEASURED_FORMAT = "gpuplan.measured-steps/1"
Progress = Callable[[str], None]

# Repeats of one PROFET workload on one instance spread by 1.25 % (coefficient of variation, median over the
# workloads; 90th percentile 3.9 %: nine repeats each, ddps-lab/profet@e69477fe6ea4). An 80 % interval of a
# normal distribution is 1.28 standard deviations wide; the 90th percentile is taken as the deviation.
REPEAT_NOISE = 0.039
ALONE_FROM = 120  # least rows of a family of architectures for a separate fold
FOLDS = 4  # for the others
MEASURED_LOG = math.log1p(1.28 * REPEAT_NOISE)


def cross_validate_architectures(
    samples: Sequence[LabelledSample], *, progress: Progress, whole: FittedCoefficients | None = None
) -> CrossValidation:
    """Predict every family of architectures by a fit that has seen none of it, on no chip and in no source."""
    folds = _assign_folds(samples, lambda m: m.family, alone_from=ALONE_FROM, folds=FOLDS)
    return _leave_out(samples, lambda m: folds[m.family], progress=progress, whole=whole)


def cross_validate_accelerators(
    samples: Sequence[LabelledSample], *, progress: Progress, whole: FittedCoefficients | None = None
) -> CrossValidation:
    """Predict every accelerator from its datasheet alone; a generation that only it had gets the mean."""
    return _leave_out(samples, lambda m: m.chip, progress=progress, whole=whole)


def cross_validate_sources(
    samples: Sequence[LabelledSample], *, progress: Progress, whole: FittedCoefficients | None = None
) -> CrossValidation:
    """Predict every source by a fit without it."""
    folds = _assign_folds(samples, lambda m: m.origin, alone_from=ALONE_FROM // 3, folds=2)
    return _leave_out(samples, lambda m: folds[m.origin], progress=progress, whole=whole)


def _leave_out(
    samples: Sequence[LabelledSample],
    name_of: Callable[[Measurement], str],
    *,
    progress: Progress,
    whole: FittedCoefficients | None,
) -> CrossValidation:
    """Predict every group by a fit without it, which chooses its spreads among the rows that it has."""
    inner = list_inner_groups(samples)
    return cross_validate(
        samples, group_of=lambda e: name_of(e.measurement), progress=progress, inner=inner, whole=whole
    )


def list_inner_groups(samples: Sequence[LabelledSample]) -> list[str]:
    """Return the groups by which a fit chooses its spreads: what a user's run is to it.

    Published rows are left out by publisher, our own, whose stack users run, by network.
    """
    folds = _assign_folds(samples, lambda m: m.origin, alone_from=ALONE_FROM // 3, folds=2)
    rows = [sample.measurement for sample in samples]
    own = assign_folds([m.family for m in rows if m.collection == OWN], alone_from=len(rows), folds=FOLDS)
    return [f"own {own[m.family]}" if m.collection == OWN else folds[m.origin] for m in rows]


def _assign_folds(
    samples: Sequence[LabelledSample], name_of: Callable[[Measurement], str], *, alone_from: int, folds: int
) -> dict[str, str]:
    """Return the fold of each name; names that only our own steps have are left out apart from published ones."""
    rows = [sample.measurement for sample in samples]
    names = [name_of(m) for m in rows if m.collection != OWN]
    published = assign_folds(names, alone_from=alone_from, folds=folds)
    others = [name_of(m) for m in rows if name_of(m) not in published]
    own = assign_folds(others, alone_from=len(rows), folds=FOLDS)
    return published | {name: f"own {fold}" for name, fold in own.items()}


def select_single_gpu_rows(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the rows that are fitted on: training steps and inference calls of one GPU.

    An inference call is a forward pass alone: it tells what the forward pass takes of a training step.
    """
    return [
        m
        for m in measurements
        if m.devices == 1 and m.accelerator != "CPU" and not m.accelerator.startswith("TPU")
    ]


def is_training(m: Measurement) -> bool:
    """Return True for a measured training step."""
    return m.mode == "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted coefficients, and the intermediate results from which other files are built.

    Args:
        coefficients: With their intervals, as they are packaged.
        fitted: The fit of everything.
        models: Fits without each architecture.
        chips: Fits without each chip.
        sources: Fits without each publisher.
    """

    coefficients: Coefficients
    fitted: FittedCoefficients
    models: CrossValidation
    chips: CrossValidation
    sources: CrossValidation


def calibrate(
    samples: Sequence[LabelledSample], accelerators: Mapping[str, Accelerator], *, progress: Progress
) -> Calibration:
    """Fit on all rows of one GPU; calibrate the intervals on residuals of what was left out.

    A user's runs are of no publisher in the fit, so residuals of left-out publishers give the scale; those of
    left-out chips give how much wider it is on a chip without measurements.
    """
    progress("everything")
    fitted, factors = fit([sample.fit_sample for sample in samples], groups=list_inner_groups(samples))
    models = cross_validate_architectures(samples, progress=progress, whole=fitted)
    chips = cross_validate_accelerators(samples, progress=progress, whole=fitted)
    sources = cross_validate_sources(samples, progress=progress, whole=fitted)
    intervals = fit_interval_model(_list_user_residuals((sources, chips), models))
    rows = [sample.measurement for sample in samples]
    coefficients = Coefficients(
        generations=fitted.generations,
        era=fitted.era,
        shared=fitted.shared,
        stacks=complete_stacks(fitted.stacks),
        hosts=complete_hosts(fitted.hosts),
        measured_log=MEASURED_LOG,
        intervals=intervals,
        fitted_on={
            "runs": sorted({name_measured_run_kind(m) for m in rows}),
            "chips": sorted({m.chip for m in rows}),
            "stacks": sorted({name_stack(m) for m in rows}),
            "vendors": sorted({accelerators[m.accelerator].vendor for m in rows}),
            "architectures": sorted({m.architecture for m in rows}),
            "sources": dict(sorted(Counter(m.origin for m in rows).items())),
            "rows": len(rows),
            "spreads": factors,
        },
    )
    return Calibration(coefficients=coefficients, fitted=fitted, models=models, chips=chips, sources=sources)


def _list_user_residuals(
    validations: Sequence[CrossValidation], models: CrossValidation
) -> list[FeaturedResidual]:
    """Return the residuals that calibrate a user's intervals, grouped by publisher.

    No measurement of a user is in the fit. Residuals on left-out chips are of known publishers, and nearly no
    others are on unmeasured chips: the two effects cannot be separated, and all of it is attributed to the chip.
    Users run the stacks of our own steps, which the fit knows: those are left out by network.

    Args:
        validations: Without each publisher, and without each chip.
        models: Without each architecture.
    """
    pairs = [
        (one, sample.measurement)
        for validation in (*validations, models)
        for one, sample in zip(validation.residuals, validation.samples, strict=True)
        if (sample.measurement.collection == OWN) == (validation is models)
    ]
    return [one._replace(group=m.origin, features={**one.features, "known publisher": 0.0}) for one, m in pairs]


def complete_stacks(stacks: Mapping[str, StackCoefficients]) -> dict[str, StackCoefficients]:
    """Return the fitted stacks with the mean of tuned ones, and those of calls by the stack that trains.

    No call of Keras 3 was measured: a program of XLA has the rates of a step, PyTorch those of its own modules.
    """
    found = dict(stacks) | compute_class_means(stacks, classes=("tuned",))
    xla = name_user_stack("keras", mode="train", compiled=True)
    eager = name_user_stack("eager", mode="infer", compiled=False)
    for name, alike in ((append_mode(xla, "infer"), xla), (append_mode(KERAS_TORCH, "infer"), eager)):
        if alike in found:
            found.setdefault(name, found[alike])
    return found


def complete_hosts(hosts: Mapping[str, HostCoefficients]) -> dict[str, HostCoefficients]:
    """Return the fitted hosts with the means of classes, and Keras on PyTorch in the loop of `fit()`.

    Its steps were timed alone: a loop takes what those of PyTorch's own modules do, and a call no more than it
    dispatches.
    """
    found = dict(hosts) | compute_class_means(hosts)
    if KERAS_TORCH in hosts:
        for mode, step_s in (("train", hosts[KERAS_TORCH].fixed_s), ("infer", 0.0)):
            own = hosts.get(append_mode(KERAS_TORCH, mode), hosts[KERAS_TORCH])
            loop = found[append_mode("eager", mode)]
            found[append_mode(KERAS_TORCH_LOOP, mode)] = replace(
                loop, dispatch_s=own.dispatch_s, fixed_s=loop.fixed_s + step_s
            )
    return found


def compute_class_means(members: Mapping[str, Any], *, classes: Sequence[str] = STACKS) -> dict[str, Any]:
    """Return the geometric mean over each of the classes that a user can name, for training and for inference.

    Hosts named by an instance type ran Keras, and so did those of XLA. Discontinued backends (MXNet, CNTK,
    TensorFlow 1) are excluded; for an empty class the mean of all other classes of its mode is taken.
    """
    found = {}
    named = [(*split_mode(name), value) for name, value in members.items() if name]
    for mode in ("train", "infer"):
        ours = [(_class_in(name), value) for name, of, value in named if of == mode]
        for kind in classes:
            alike = [value for own, value in ours if own == kind] or [value for own, value in ours if own]
            if alike:
                found[append_mode(kind, mode)] = _geometric_mean(alike)
    return found


def _class_in(name: str) -> str | None:
    """Return the class of a stack or a host; None if it does not represent a current one."""
    if " keras" in name:  # odd layouts have a word more
        return "keras" if name.startswith("tensorflow2") else None
    if name == "inductor":
        return "eager"
    return next((kind for kind in STACKS if f" {kind}" in name), "keras")


def _geometric_mean(members: Sequence[Any]) -> Any:
    logs = {f.name: [math.log(getattr(one, f.name)) for one in members] for f in fields(members[0])}
    return type(members[0])(**{name: math.exp(sum(each) / len(each)) for name, each in logs.items()})


def is_plain_fit(m: Measurement) -> bool:
    """Return True for plain Keras `fit` of TensorFlow 2 on arrays and one GPU, as a user would run it.

    Only such measurements are looked up for a user's `fit` on the same chip.
    """
    plain = m.stack == "keras" and m.framework == "tensorflow2" and m.feed == "numpy"
    return plain and m.work == m.mode == "train" and m.devices == 1 and m.accelerator != "CPU"


def build_measured_index(measurements: Sequence[Measurement], traces: Mapping[str, TracedRun]) -> dict[str, Any]:
    """Return the look-up table of measured steps as plain JSON types.

    Args:
        measurements: Whatever was published; what was no plain `fit` is not looked up.
        traces: What they launch, by `build_run_key`.
    """
    sources: list[str] = []
    steps: dict[str, list[list[Any]]] = {}
    for m in filter(is_plain_fit, measurements):
        source = m.source.rsplit(" (", 1)[0]
        if source not in sources:
            sources.append(source)
        row = [m.accelerator, float(f"{m.step_s:.6g}"), sources.index(source)]
        steps.setdefault(compute_fingerprint(m, traces[build_run_key(m)].kernels), []).append(row)
    return {"schema": MEASURED_FORMAT, "sources": sources, "steps": dict(sorted(steps.items()))}


def write_json(path: Path, data: Any, *, indent: int | None = 2) -> None:
    """Write a JSON file: a reader sees the old one or the new one."""
    write_atomically(path, json.dumps(data, indent=indent) + "\n")


def name_measured_run_kind(m: Measurement) -> str:
    """Return the kind of run of a measurement."""
    return append_mode(name_run_kind(m.accelerator, m.precision, compiled=m.compiled), m.mode)


def split_mode(name: str) -> tuple[str, str]:
    """Return the name without the suffix of `append_mode`, and the mode.

    Example:
        >>> split_mode("keras"), split_mode("keras infer")
        (('keras', 'train'), ('keras', 'infer'))
    """
    trained = name.removesuffix(" infer")
    return trained, "train" if trained == name else "infer"

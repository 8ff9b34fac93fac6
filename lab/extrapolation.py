"""Held-out predictions of rows outside the fit: several devices, inference, other chips.

The formulas are fitted on steps and calls of one GPU. What they make of other rows is judged by the same rule: the
fit that predicts a row has seen nothing of what is left out with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.accelerator_limits import find_release_year
from gpuplan.predict.data_parallel import ratio_scale
from gpuplan.predict.intervals import IntervalModel, TimeBreakdown, compute_features, interval_around
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.modelled_step import model_step
from gpuplan.predict.run_config import find_wait_factor
from gpuplan.predict.scores import ScoredRow
from gpuplan.units import Interval

from .cross_validation import CrossValidation, cross_validate_baselines, predict_sample_s
from .dataset import build_samples
from .multi_device.data import ScalingPair, pair_measurements
from .multi_device.fit import cross_validate_scaling

# Of steps on several devices, whose kernels are those of one: only what the step is decides on their interval.
NO_BREAKDOWN = TimeBreakdown(convolutions=0.0, products=0.0, traffic=1.0, waiting=0.0)

Progress = Callable[[str], None]
NameOf = Callable[[Measurement], str]


def select_inference_rows(corpus: Sequence[Measurement]) -> list[Measurement]:
    """Return the inference calls on GPUs; several devices work each for itself, and exchange nothing."""
    return [m for m in corpus if m.mode == "infer" and m.accelerator != "CPU"]


def select_multi_gpu_rows(corpus: Sequence[Measurement]) -> list[Measurement]:
    """Return the training steps on several GPUs."""
    others = ("CPU", "TPU")
    return [m for m in corpus if m.mode == "train" and m.devices > 1 and not m.accelerator.startswith(others)]


def select_tpu_rows(corpus: Sequence[Measurement]) -> list[Measurement]:
    """Return the training steps on TPU slices, without those whose weights are sharded: they are not modelled."""
    tpus = (m for m in corpus if m.mode == "train" and m.accelerator.startswith("TPU"))
    return [m for m in tpus if m.distribution != "fsdp"]


def _family(m: Measurement) -> str:
    return m.family


def _origin(m: Measurement) -> str:
    return m.origin


def predict_inference(
    validation: CrossValidation,
    rows: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    progress: Progress,
) -> CrossValidation:
    """Predict the forward pass of every architecture by a fit without it.

    Args:
        validation: Fits without each architecture.
        rows: Inference calls.
        accelerators: The catalog's, by name.
        progress: Is told what is being done.
    """
    samples = build_samples(rows, accelerators, progress=progress)
    families = tuple(m.family for m in rows)
    steps = [model_step(e.fit_sample, validation.fit_without(e.measurement, _family)) for e in samples]
    return CrossValidation(
        samples=tuple(samples),
        groups=families,
        predicted_s=tuple(step.total_s for step in steps),
        breakdowns=tuple(step.breakdown for step in steps),
        baseline_s=cross_validate_baselines(samples, families) if len(set(families)) > 1 else {},
    )


def model_pairs(
    validation: CrossValidation,
    rows: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    name_of: NameOf,
    progress: Progress,
) -> list[ScalingPair]:
    """Return steps on several devices with what the model says of one, by a fit without each row's name.

    Args:
        validation: Fits without each name.
        rows: Training steps on several devices.
        accelerators: The catalog's, by name.
        name_of: What is left out with a row: its source, or its architecture.
        progress: Is told what is being done.
    """
    samples = build_samples(rows, accelerators, progress=progress)
    single_s = {
        id(e.measurement): predict_sample_s(e.fit_sample, validation.fit_without(e.measurement, name_of))
        for e in samples
    }
    return pair_measurements(rows, accelerators, single_s_of=lambda m: single_s[id(m)])[0]


def score_devices(
    validation: CrossValidation,
    rows: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    scaling: Sequence[ScalingPair],
    progress: Progress,
) -> tuple[list[ScoredRow], list[ScoredRow]]:
    """Predict steps on several devices by fits without their publisher, and by perfect scaling of the same step.

    Intervals are those of users (`extend_step`): of the step on one device, and of what several devices add.

    Args:
        validation: Fits without each publisher.
        rows: Training steps on several devices.
        accelerators: The catalog's, by name.
        scaling: Published pairs, which several devices are fitted on without each row's publisher.
        progress: Is told what is being done.
    """
    samples = build_samples(rows, accelerators, progress=progress)
    steps = [model_step(e.fit_sample, validation.fit_without(e.measurement, _origin)) for e in samples]
    groups = [validation.find_group(e.measurement, _origin) for e in samples]
    singles = CrossValidation(
        samples=tuple(samples),
        groups=tuple(groups),
        predicted_s=tuple(step.total_s for step in steps),
        breakdowns=tuple(step.breakdown for step in steps),
    )
    models = {group: validation.fit_intervals(without=group) for group in set(groups)}
    around = {
        id(sample.measurement): models[group].compute_interval(step.total_s, features)
        for sample, group, step, features in zip(samples, groups, steps, singles.features, strict=True)
    }
    judged = pair_measurements(rows, accelerators, single_s_of=lambda m: around[id(m)].mid)[0]
    judged = [pair for pair in judged if pair.form in {one.form for one in scaling}]
    found, published = cross_validate_scaling(scaling, judged=judged), cross_validate_scaling(scaling)
    ends = {group: published.interval(without=group) for group in set(found.groups)}
    scored, perfect = [], []
    for pair, mid_s, group in zip(judged, found.predicted_s, found.groups, strict=True):
        one = around[id(pair.measurement)]
        times = combine_intervals(one, mid_s, ends[group])
        scored.append(ScoredRow(measurement=pair.measurement, predicted_s=times, basis="modelled"))
        perfect.append(ScoredRow(measurement=pair.measurement, predicted_s=one, basis="perfect_scaling"))
    return scored, perfect


def combine_intervals(one: Interval, mid_s: float, ends: tuple[float, float]) -> Interval:
    """Return the interval of a step on several devices: squares of log widths add up, as in `extend_step`.

    Args:
        one: The step on one device [s].
        mid_s: The step on several [s].
        ends: Of the log of their ratio, over its scale [-].
    """
    shortest, longest = (end * ratio_scale(mid_s / one.mid) for end in ends)
    below = math.hypot(math.log(one.mid / one.low), min(shortest, 0.0))
    above = math.hypot(math.log(one.high / one.mid), max(longest, 0.0))
    return interval_around(mid_s, -below, above)


def predict_new_accelerators(
    validation: CrossValidation,
    rows: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    scaling: Sequence[ScalingPair],
    intervals: IntervalModel,
    progress: Progress,
) -> list[ScoredRow]:
    """Predict steps on slices of chips that no fit has seen, from their datasheets.

    Args:
        validation: Fits on GPUs without each architecture.
        rows: Training steps on several such chips.
        accelerators: The catalog's, by name.
        scaling: Published pairs of all-reduces, which several devices are fitted on without each row's source.
        intervals: Of steps on chips that were left out.
        progress: Is told what is being done.
    """
    judged = model_pairs(validation, rows, accelerators, name_of=_family, progress=progress)
    found = cross_validate_scaling(scaling, judged=judged)
    return [
        ScoredRow(
            measurement=pair.measurement,
            basis="datasheet",
            predicted_s=intervals.compute_interval(
                mid_s * find_wait_factor(pair.measurement),
                compute_features(
                    NO_BREAKDOWN,
                    on_tensor_units=True,
                    mode=pair.measurement.mode,
                    compiled=pair.measurement.compiled,
                    step_s=mid_s,
                    chip_year=find_release_year(accelerators[pair.measurement.accelerator]),
                    is_chip_measured=False,
                    is_vendor_measured=False,
                ),
            ),
        )
        for pair, mid_s in zip(judged, found.predicted_s, strict=True)
    ]

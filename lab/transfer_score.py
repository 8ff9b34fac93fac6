"""Cross-validation of predictions from a profile on another accelerator, with held-out architectures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuplan.predict.coefficients import FittedCoefficients
from gpuplan.predict.from_profile.error_covariance import PARTS, StepSummary, build_features
from gpuplan.predict.from_profile.error_model import COLUMNS, BatchProfile, ErrorModel, TrainingErrors
from gpuplan.predict.intervals import interval_around
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.modelled_step import model_step
from gpuplan.predict.scores import ScoredRow
from gpuplan.records import to_plain

from .covariance_fit import fit_error_covariance
from .cross_validation import CrossValidation, LabelledSample
from .quantiles import compute_log_bounds

FORMAT = "gpuplan.transfer/1"
Batches = Literal["all", "two"]
Keep = Callable[[Measurement], bool]
FEW, MANY = "few", "many"


def name_workload(m: Measurement) -> str:
    """Return the name of a measurement's workload, independent of accelerator and batch size."""
    return f"{m.collection} {m.model} {m.mode} {m.precision} {m.stack}{' xla' if m.compiled else ''}"


def summarize_step(sample: LabelledSample, fitted: FittedCoefficients) -> StepSummary:
    """Return the modelled step of an example; memory sizes of one chip count as one accelerator."""
    m, fit_sample = sample.measurement, sample.fit_sample
    modelled = model_step(fit_sample, fitted)
    return StepSummary(
        work=name_workload(m),
        accelerator=m.chip,
        batch_size=m.batch_size,
        modelled_s=modelled.total_s,
        parts_s=modelled.parts_s,
        input_bytes=fit_sample.input_bytes,
        launches=float(fit_sample.table.count.sum()),
    )


def _collect_training_errors(samples: Sequence[LabelledSample], fitted: FittedCoefficients) -> TrainingErrors:
    steps = tuple(summarize_step(sample, fitted) for sample in samples)
    return TrainingErrors(
        steps=steps,
        log_ratios=tuple(
            math.log(sample.measurement.step_s / step.modelled_s)
            for sample, step in zip(samples, steps, strict=True)
        ),
    )


def _fit_error_model_on(
    samples: Sequence[LabelledSample], fitted: FittedCoefficients, ends: dict[str, tuple[float, float]]
) -> ErrorModel:
    training_errors = _collect_training_errors(samples, fitted)
    covariance_model = fit_error_covariance(build_features(training_errors.steps), training_errors.log_ratios)
    return ErrorModel(covariance_model=covariance_model, training_errors=training_errors, ends=ends)


def error_model_to_json(model: ErrorModel) -> dict[str, Any]:
    """Return the content of `transfer.json`; training errors as one row per step."""
    pairs = zip(model.training_errors.steps, model.training_errors.log_ratios, strict=True)
    rows = [[*_row(step), _short(log_ratio)] for step, log_ratio in pairs]
    return {"schema": FORMAT, "law": to_plain(model.covariance_model), "ends": model.ends, "library": rows}


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _row(step: StepSummary) -> list[Any]:
    parts_s = [_short(step.parts_s[name]) for name in PARTS]
    short = {"modelled_s": _short(step.modelled_s), "parts_s": parts_s}
    return [short[name] if name in short else getattr(step, name) for name in COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPrediction:
    """A measured step, and what was predicted of it from a profile on another accelerator.

    Args:
        measurement: The step that was predicted.
        group: What was left out to predict it.
        source: Accelerator that the profile was measured on.
        mid_s: Predicted time [s].
        spread: Its standard deviation [log units].
        baselines_s: What rules of thumb make of the same profile [s].
    """

    measurement: Measurement
    group: str
    source: str
    mid_s: float
    spread: float
    baselines_s: dict[str, float]

    @property
    def scaled_error(self) -> float:
        """Return log(measured / predicted) in units of its spread [-]."""
        return math.log(self.measurement.step_s / self.mid_s) / self.spread


def _select_profile_rows(rows: Sequence[int], samples: Sequence[LabelledSample], batches: Batches) -> list[int]:
    """Return the rows of a profile by batch size: all of them, or those at the smallest and the largest."""
    ordered = sorted(rows, key=lambda row: samples[row].measurement.batch_size)
    return ordered if batches == "all" else sorted({ordered[0], ordered[-1]})


def _group_by_workload(samples: Sequence[LabelledSample]) -> Iterator[dict[str, list[int]]]:
    """Yield, for each workload, the rows of each accelerator."""
    works: dict[str, dict[str, list[int]]] = {}
    for row, sample in enumerate(samples):
        m = sample.measurement
        works.setdefault(name_workload(m), {}).setdefault(m.accelerator, []).append(row)
    yield from works.values()


def _scale_by_datasheet(profiled: Sequence[LabelledSample], target: LabelledSample) -> dict[str, float]:
    """Return the measured time by the ratio of peaks, and of bandwidths, of the two chips [s]."""
    source, sizes = profiled[0], [(e.measurement.batch_size, e.measurement.step_s) for e in profiled]
    profile = BatchProfile(accelerator=source.measurement.accelerator, steps=tuple(sizes))
    there_s = profile.step_s(target.measurement.batch_size)
    here, there = target.fit_sample.chip, source.fit_sample.chip
    return {
        "peak_ratio": there_s * float(there.vector_flop_per_s / here.vector_flop_per_s),
        "bandwidth_ratio": there_s * float(there.memory_bytes_per_s / here.memory_bytes_per_s),
    }


def _predict_group(
    held: Sequence[LabelledSample],
    rest: Sequence[LabelledSample],
    fitted: FittedCoefficients,
    group: str,
    *,
    source: str | None,
    batches: Batches,
) -> Iterator[TransferPrediction]:
    error_model = _fit_error_model_on(rest, fitted, ends={})
    steps = [summarize_step(sample, fitted) for sample in held]
    for by_accelerator in _group_by_workload(held):
        for name in sorted(by_accelerator):
            if source not in (None, name):
                continue
            known = _select_profile_rows(by_accelerator[name], held, batches)
            targets = [row for other, rows in by_accelerator.items() if other != name for row in rows]
            found = error_model.corrections(
                [steps[row] for row in known],
                [held[row].measurement.step_s for row in known],
                [steps[row] for row in targets],
            )
            for row, correction in zip(targets, found, strict=True):
                mid_s = steps[row].modelled_s * math.exp(correction.log_ratio)
                yield TransferPrediction(
                    measurement=held[row].measurement,
                    group=group,
                    source=name,
                    mid_s=mid_s,
                    spread=correction.spread,
                    baselines_s=_scale_by_datasheet([held[i] for i in known], held[row]),
                )


def predict_transfers(
    validation: CrossValidation,
    *,
    source: str | None = None,
    batches: Batches = "all",
    keep: Keep = lambda _: True,
) -> tuple[TransferPrediction, ...]:
    """Predict every step that was held out from the profile of the same workload on other accelerators.

    Neither the fit of the model nor what is learnt about its errors has seen the group that is predicted: of
    it only the profile is known.

    Args:
        validation: Fits without each group.
        source: Accelerator that profiles come from; None: every one in turn.
        batches: `all` that were measured there, or the `two` outermost.
        keep: Which rows take part.
    """
    pairs = [(e, g) for e, g in zip(validation.samples, validation.groups, strict=True) if keep(e.measurement)]
    predictions: list[TransferPrediction] = []
    for group in sorted({g for _, g in pairs}):
        held = [e for e, g in pairs if g == group]
        rest = [e for e, g in pairs if g != group]
        predictions += _predict_group(held, rest, validation.fits[group], group, source=source, batches=batches)
    return tuple(predictions)


def _ends(predictions: Sequence[TransferPrediction]) -> tuple[float, float]:
    return compute_log_bounds([c.scaled_error for c in predictions], [c.group for c in predictions])


def score_transfer(
    validation: CrossValidation,
    *,
    source: str | None = None,
    batches: Batches = "all",
    keep: Keep = lambda _: True,
) -> tuple[ScoredRow, ...]:
    """Return `predict_transfers` as rows to score."""
    return score_transfers(predict_transfers(validation, source=source, batches=batches, keep=keep))


def score_transfers(predictions: Sequence[TransferPrediction]) -> tuple[ScoredRow, ...]:
    """Return rows with an interval each, made of the errors on the *other* groups only.

    A row's ``basis`` names the accelerator that it was scaled from.
    """
    groups = {c.group for c in predictions}
    ends = {group: _ends([c for c in predictions if c.group != group]) for group in groups if len(groups) > 1}
    return tuple(
        ScoredRow(
            measurement=c.measurement,
            basis=f"scaled from {c.source}",
            predicted_s=interval_around(c.mid_s, *(end * c.spread for end in ends[c.group])),
        )
        for c in predictions
    )


def score_transfer_baselines(predictions: Sequence[TransferPrediction]) -> dict[str, tuple[ScoredRow, ...]]:
    """Return the baselines' predictions from the same profiles, by name."""
    baselines = predictions[0].baselines_s if predictions else {}
    return {
        rule: score_transfers([replace(c, mid_s=c.baselines_s[rule], spread=1.0) for c in predictions])
        for rule in baselines
    }


def fit_error_model(
    validation: CrossValidation, fitted: FittedCoefficients, *, keep: Keep = lambda _: True
) -> ErrorModel:
    """Fit the packaged error model on all measurements.

    Args:
        validation: Fits without each architecture, for the intervals.
        fitted: The fit of everything, which the stored errors are errors of.
        keep: Which rows take part.
    """
    ends = {
        FEW: _ends(predict_transfers(validation, batches="two", keep=keep)),
        MANY: _ends(predict_transfers(validation, batches="all", keep=keep)),
    }
    return _fit_error_model_on([e for e in validation.samples if keep(e.measurement)], fitted, ends)

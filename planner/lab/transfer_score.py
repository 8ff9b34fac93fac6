"""Errors of predictions from a profile elsewhere, on architectures that nothing has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..predict.from_profile.error_covariance import StepSummary, build_features
from ..predict.from_profile.error_model import BatchProfile, ErrorModel, TrainingErrors
from ..predict.from_profile.error_model_fit import fit_error_covariance
from ..predict.interval.quantiles import compute_log_bounds, interval_around
from ..predict.measurements import Measurement
from ..predict.parameter_vector import FittedCoefficients
from .cross_validation import CrossValidation, LabelledSample, model_sample
from .scores import ScoredRow

__all__ = [
    "Batches",
    "TransferPrediction",
    "fit_error_model",
    "name_workload",
    "predict_transfers",
    "score_transfer",
    "score_transfer_baselines",
    "score_transfers",
    "summarize_step",
]

Batches = Literal["all", "two"]
Keep = Callable[[Measurement], bool]
FEW, MANY = "few", "many"


def name_workload(m: Measurement) -> str:
    """Return what a measurement ran, whatever the accelerator and the batch size."""
    return f"{m.collection} {m.model} {m.mode} {m.precision} {m.stack}{' xla' if m.compiled else ''}"


def summarize_step(example: LabelledSample, fitted: FittedCoefficients) -> StepSummary:
    """Return the modelled step of an example; memory sizes of one chip count as one accelerator."""
    m, case = example.measurement, example.case
    modelled = model_sample(case, fitted)
    return StepSummary(
        work=name_workload(m), accelerator=m.chip, batch_size=m.batch_size,
        modelled_s=modelled.total_s, parts_s=modelled.parts_s, input_bytes=case.input_bytes,
        launches=float(case.table.count.sum()),
    )  # fmt: skip


def _library(examples: Sequence[LabelledSample], fitted: FittedCoefficients) -> TrainingErrors:
    steps = tuple(summarize_step(example, fitted) for example in examples)
    return TrainingErrors(
        steps=steps,
        log_ratios=tuple(
            math.log(example.measurement.step_s / step.modelled_s)
            for example, step in zip(examples, steps, strict=True)
        ),
    )


def _learnt(
    examples: Sequence[LabelledSample], fitted: FittedCoefficients, ends: dict[str, tuple[float, float]]
) -> ErrorModel:
    library = _library(examples, fitted)
    law = fit_error_covariance(build_features(library.steps), library.log_ratios)
    return ErrorModel(law=law, library=library, ends=ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPrediction:
    """A measured step, and what was predicted of it from a profile on another accelerator.

    Args:
        measurement: The step that was predicted.
        group: What was left out to predict it.
        source: Accelerator that the profile was measured on.
        mid_s: Predicted time [s].
        spread: Its standard deviation [log units].
        rules_s: What rules of thumb make of the same profile [s].
    """

    measurement: Measurement
    group: str
    source: str
    mid_s: float
    spread: float
    rules_s: dict[str, float]

    @property
    def scaled_error(self) -> float:
        """Return log(measured / predicted) in units of its spread [-]."""
        return math.log(self.measurement.step_s / self.mid_s) / self.spread


def _profiled(rows: Sequence[int], examples: Sequence[LabelledSample], batches: Batches) -> list[int]:
    """Return the rows of a profile by batch size: all of them, or those at the smallest and the largest."""
    ordered = sorted(rows, key=lambda row: examples[row].measurement.batch_size)
    return ordered if batches == "all" else sorted({ordered[0], ordered[-1]})


def _works(examples: Sequence[LabelledSample]) -> Iterator[dict[str, list[int]]]:
    """Yield, for each workload, the rows of each accelerator."""
    works: dict[str, dict[str, list[int]]] = {}
    for row, example in enumerate(examples):
        m = example.measurement
        works.setdefault(name_workload(m), {}).setdefault(m.accelerator, []).append(row)
    yield from works.values()


def _by_datasheet(profiled: Sequence[LabelledSample], target: LabelledSample) -> dict[str, float]:
    """Return the measured time by the ratio of peaks, and of bandwidths, of the two chips [s]."""
    source, sizes = profiled[0], [(e.measurement.batch_size, e.measurement.step_s) for e in profiled]
    profile = BatchProfile(accelerator=source.measurement.accelerator, steps=tuple(sizes))
    there_s = profile.step_s(target.measurement.batch_size)
    here, there = target.case.chip, source.case.chip
    return {
        "peak_ratio": there_s * float(there.vector_flop_per_s / here.vector_flop_per_s),
        "bandwidth_ratio": there_s * float(there.memory_bytes_per_s / here.memory_bytes_per_s),
    }


def _carry_group(
    held: Sequence[LabelledSample], rest: Sequence[LabelledSample], fitted: FittedCoefficients, group: str, *,
    source: str | None, batches: Batches,
) -> Iterator[TransferPrediction]:  # fmt: skip
    transfer = _learnt(rest, fitted, ends={})
    steps = [summarize_step(example, fitted) for example in held]
    for by_accelerator in _works(held):
        for name in sorted(by_accelerator):
            if source not in (None, name):
                continue
            known = _profiled(by_accelerator[name], held, batches)
            targets = [row for other, rows in by_accelerator.items() if other != name for row in rows]
            found = transfer.corrections(
                [steps[row] for row in known],
                [held[row].measurement.step_s for row in known],
                [steps[row] for row in targets],
            )
            for row, correction in zip(targets, found, strict=True):
                mid_s = steps[row].modelled_s * math.exp(correction.log_ratio)
                yield TransferPrediction(
                    measurement=held[row].measurement, group=group, source=name, mid_s=mid_s,
                    spread=correction.spread, rules_s=_by_datasheet([held[i] for i in known], held[row]),
                )  # fmt: skip


def predict_transfers(
    held_out: CrossValidation,
    *,
    source: str | None = None,
    batches: Batches = "all",
    keep: Keep = lambda _: True,
) -> tuple[TransferPrediction, ...]:
    """Predict every step that was held out from the profile of the same workload on other accelerators.

    Neither the fit of the model nor what is learnt about its errors has seen the group that is predicted: of
    it only the profile is known.

    Args:
        held_out: Fits without each group.
        source: Accelerator that profiles come from; None: every one in turn.
        batches: `all` that were measured there, or the `two` outermost.
        keep: Which rows take part.
    """
    pairs = [(e, g) for e, g in zip(held_out.examples, held_out.groups, strict=True) if keep(e.measurement)]
    carried: list[TransferPrediction] = []
    for group in sorted({g for _, g in pairs}):
        held = [e for e, g in pairs if g == group]
        rest = [e for e, g in pairs if g != group]
        carried += _carry_group(
            held, rest, held_out.fits[group], group, source=source, batches=batches
        )  # fmt: skip
    return tuple(carried)


def _ends(carried: Sequence[TransferPrediction]) -> tuple[float, float]:
    return compute_log_bounds([c.scaled_error for c in carried], [c.group for c in carried])


def score_transfer(
    held_out: CrossValidation,
    *,
    source: str | None = None,
    batches: Batches = "all",
    keep: Keep = lambda _: True,
) -> tuple[ScoredRow, ...]:
    """Return `predict_transfers` as rows to score."""
    return score_transfers(predict_transfers(held_out, source=source, batches=batches, keep=keep))


def score_transfers(carried: Sequence[TransferPrediction]) -> tuple[ScoredRow, ...]:
    """Return rows with an interval each, made of the errors on the *other* groups only.

    A row's ``basis`` names the accelerator that it was scaled from.
    """
    groups = {c.group for c in carried}
    ends = {group: _ends([c for c in carried if c.group != group]) for group in groups if len(groups) > 1}
    return tuple(
        ScoredRow(
            measurement=c.measurement, basis=f"scaled from {c.source}",
            predicted_s=interval_around(c.mid_s, *(end * c.spread for end in ends[c.group])),
        )
        for c in carried
    )  # fmt: skip


def score_transfer_baselines(carried: Sequence[TransferPrediction]) -> dict[str, tuple[ScoredRow, ...]]:
    """Return what rules of thumb make of the same profiles, by name of the rule."""
    rules = carried[0].rules_s if carried else {}
    return {
        rule: score_transfers([replace(c, mid_s=c.rules_s[rule], spread=1.0) for c in carried])
        for rule in rules
    }


def fit_error_model(
    held_out: CrossValidation, fitted: FittedCoefficients, *, keep: Keep = lambda _: True
) -> ErrorModel:
    """Learn from everything that was measured what to store beside the coefficients of the model.

    Args:
        held_out: Fits without each architecture, for the intervals.
        fitted: The fit of everything, which the stored errors are errors of.
        keep: Which rows take part.
    """
    ends = {
        FEW: _ends(predict_transfers(held_out, batches="two", keep=keep)),
        MANY: _ends(predict_transfers(held_out, batches="all", keep=keep)),
    }
    return _learnt([e for e in held_out.examples if keep(e.measurement)], fitted, ends)

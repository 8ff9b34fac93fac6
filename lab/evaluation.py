"""Held-out predictions, shared by all evaluation settings."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.scores import ScoredRow

from .calibrate import (
    cross_validate_accelerators,
    cross_validate_architectures,
    cross_validate_sources,
    is_training,
    select_single_gpu_rows,
)
from .cross_validation import CrossValidation, LabelledSample, cross_validate
from .dataset import build_samples, load_corpus
from .extrapolation import (
    predict_inference,
    predict_new_accelerators,
    score_devices,
    select_inference_rows,
    select_multi_gpu_rows,
    select_tpu_rows,
)
from .multi_device.data import ExchangeForm, ScalingPair, pair_measurements
from .multi_device.fit import cross_validate_scaling
from .publisher_agreement import add_other_publishers
from .regret import build_workload_key
from .transfer_score import Batches, predict_transfers, score_transfer_baselines, score_transfers

Progress = Callable[[str], None]
Keep = Callable[[Measurement], bool]


def judged_rows() -> list[Measurement]:
    """Return the rows that the model is fitted to and judged on: steps and calls of one GPU."""
    return select_single_gpu_rows(load_corpus())


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPredictions:
    """Rows predicted without what was held out, and the same rows by the rules of thumb.

    ``pool`` holds every measurement that took part: what is held out is taken from it, the rest is fitted on.
    """

    rows: tuple[ScoredRow, ...] = ()
    baselines: Mapping[str, tuple[ScoredRow, ...]] = field(default_factory=dict)
    pool: tuple[Measurement, ...] = ()

    def where(self, keep: Keep) -> HeldOutPredictions:
        """Return the rows whose measurement passes."""
        return HeldOutPredictions(
            rows=tuple(row for row in self.rows if keep(row.measurement)),
            baselines={
                name: tuple(row for row in rows if keep(row.measurement)) for name, rows in self.baselines.items()
            },
            pool=self.pool,
        )


def _predicted(
    validation: CrossValidation | None, *, basis: str, judged: Keep = lambda _: True
) -> HeldOutPredictions:
    """Return the predictions of rows that are judged, with intervals made of the errors on all rows."""
    if validation is None:
        return HeldOutPredictions()
    baselines = {name: tuple(validation.score_baseline(name, judged=judged)) for name in validation.baseline_s}
    pool = tuple(sample.measurement for sample in validation.samples)
    rows = tuple(validation.score(basis=basis, judged=judged))
    return HeldOutPredictions(rows=rows, baselines=baselines, pool=pool)


def _predicted_without(validation: CrossValidation, chip: str) -> HeldOutPredictions:
    """Return the predictions of what was run on a chip, wherever it was run, by the fit without that chip."""
    ran = {build_workload_key(e.measurement) for e in validation.samples if e.measurement.chip == chip}
    found = validation.predicted_by_fit_without(chip)
    ours = found.where(lambda m: is_training(m) and build_workload_key(m) in ran)
    return _predicted(ours, basis="datasheet")


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Measurements to be judged on, and what each way of holding out predicts for them, when asked for.

    Args:
        measurements: Rows to fit on and to predict.
        corpus: All published rows, among them the steps on several devices; may be empty.
        accelerators: The catalog's, by name.
        progress: Is told what is being done.
    """

    measurements: Sequence[Measurement]
    corpus: Sequence[Measurement] = ()
    accelerators: Mapping[str, Accelerator]
    progress: Progress

    @cached_property
    def samples(self) -> list[LabelledSample]:
        """Every measurement, traced."""
        return build_samples(self.measurements, self.accelerators, progress=self.progress)

    def architecture_left_out(self, keep: Keep) -> HeldOutPredictions:
        """Predict every architecture among some rows by a fit on the rest of them."""
        samples = [e for e in self.samples if keep(e.measurement)]
        if len(samples) == len(self.samples):
            return self.without_architecture
        if len({e.measurement.family for e in samples}) < 2:
            return HeldOutPredictions()  # nothing would be left to fit on
        validation = cross_validate(samples, group_of=lambda e: e.measurement.family, progress=self.progress)
        return _predicted(validation, basis="modelled")

    @cached_property
    def without_architecture(self) -> HeldOutPredictions:
        """Predictions by fits that have seen no variant of the architecture."""
        return _predicted(self.architecture_held_out, basis="modelled", judged=is_training)

    @cached_property
    def architecture_held_out(self) -> CrossValidation | None:
        """Fits that have seen no variant of an architecture; None when there is but one."""
        if len({e.measurement.family for e in self.samples}) < 2:
            return None
        return cross_validate_architectures(self.samples, progress=self.progress)

    def from_profile(self, keep: Keep, *, source: str | None, batches: Batches) -> HeldOutPredictions:
        """Predict architectures by fits without them, and by their profiles on other accelerators.

        Args:
            keep: Rows that are predicted, and whose errors are learnt from.
            source: Accelerator that was profiled; None: each in turn.
            batches: Which of the batch sizes measured there are known.
        """
        validation = self.architecture_held_out
        if validation is None:
            return HeldOutPredictions()
        self.progress(f"from a profile on {source or 'each accelerator'}")
        carried = predict_transfers(validation, source=source, batches=batches, keep=keep)
        pool = tuple(sample.measurement for sample in validation.samples)
        return HeldOutPredictions(
            rows=score_transfers(carried), baselines=score_transfer_baselines(carried), pool=pool
        )

    @cached_property
    def without_source(self) -> HeldOutPredictions:
        """Predictions by fits that have seen no row of the publisher."""
        return _predicted(self.source_held_out, basis="modelled", judged=is_training)

    @cached_property
    def inference_without_source(self) -> HeldOutPredictions:
        """Predictions of inference calls by fits that have seen no row of the publisher."""
        return _predicted(self.source_held_out, basis="modelled", judged=lambda m: m.mode == "infer")

    @cached_property
    def measured_by_others(self) -> HeldOutPredictions:
        """Predictions of the steps that two publishers measured, beside the other publisher's measurement."""
        validation = self.source_held_out
        if validation is None:
            return HeldOutPredictions()
        ours = validation.where(lambda m: is_training(m) and not m.assumed)
        return _predicted(add_other_publishers(ours), basis="modelled")

    @cached_property
    def source_held_out(self) -> CrossValidation | None:
        """Fits that have seen no row of a publisher; None when there is but one."""
        if len({e.measurement.origin for e in self.samples}) < 2:
            return None
        return cross_validate_sources(self.samples, progress=self.progress)

    @cached_property
    def without_accelerator(self) -> HeldOutPredictions:
        """Predictions from the datasheet, by fits that have seen no row of the chip."""
        return _predicted(self.accelerator_held_out, basis="datasheet", judged=is_training)

    @cached_property
    def accelerator_held_out(self) -> CrossValidation | None:
        """Fits that have seen no row of a chip; None when there is but one."""
        if len({e.measurement.accelerator for e in self.samples}) < 2:
            return None
        return cross_validate_accelerators(self.samples, progress=self.progress)

    def with_one_chip_new(self, chips: Sequence[str]) -> tuple[HeldOutPredictions, ...]:
        """Predict the runs measured on each chip, on all chips, by the fit without that chip.

        The fit has seen the other chips: these predictions are for choosing, not for counting errors.
        """
        validation = self.accelerator_held_out
        if validation is None:
            return ()
        return tuple(_predicted_without(validation, chip) for chip in chips if chip in validation.fits)

    @cached_property
    def inference(self) -> HeldOutPredictions:
        """Predictions of inference calls, by fits without any variant of the architecture."""
        validation, rows = self.architecture_held_out, select_inference_rows(self.corpus)
        if validation is None or not rows:
            return HeldOutPredictions()
        self.progress("inference")
        found = predict_inference(validation, rows, self.accelerators, progress=self.progress)
        return _predicted(found, basis="modelled")

    @cached_property
    def tpus(self) -> HeldOutPredictions:
        """Predictions of steps on TPU slices, from the datasheet, by fits on GPUs without the architecture."""
        validation, rows = self.architecture_held_out, select_tpu_rows(self.corpus)
        chips = self.accelerator_held_out if validation and rows else None
        if validation is None or chips is None:
            return HeldOutPredictions()
        self.progress("TPUs")
        found = predict_new_accelerators(
            validation,
            rows,
            self.accelerators,
            intervals=chips.where(is_training).fit_intervals(),
            progress=self.progress,
            scaling=[pair for pair in self.pairs if pair.form == "all_reduce"],
        )
        return HeldOutPredictions(rows=tuple(found), pool=tuple(e.measurement for e in validation.samples))

    @cached_property
    def pairs(self) -> list[ScalingPair]:
        """Steps on several devices, paired with the published step on one device."""
        return pair_measurements(self.corpus, self.accelerators)[0]

    @cached_property
    def devices_without_source(self) -> HeldOutPredictions:
        """Predictions of steps on several GPUs that average gradients, from the modelled step on one.

        The rule of thumb is that of perfect scaling. No row of the publisher is in either fit.
        """
        rows, validation = select_multi_gpu_rows(self.corpus), self.source_held_out
        pairs = [pair for pair in self.pairs if pair.form == "all_reduce"]
        if validation is None or not rows or len({pair.measurement.origin for pair in pairs}) < 2:
            return HeldOutPredictions()
        self.progress("several devices, end to end")
        scored, perfect = score_devices(validation, rows, self.accelerators, scaling=pairs, progress=self.progress)
        pool = tuple(row.measurement for row in scored)
        return HeldOutPredictions(rows=tuple(scored), baselines={"perfect_scaling": tuple(perfect)}, pool=pool)

    def scaling_without_source(self, forms: Container[ExchangeForm]) -> HeldOutPredictions:
        """Predict steps on several devices, each publisher left out in turn.

        The rule of thumb is that of perfect scaling: the step takes as long as on one device.

        Args:
            forms: Of exchange that are looked at.
        """
        rows: list[ScoredRow] = []
        perfect: list[ScoredRow] = []
        for form in sorted({pair.form for pair in self.pairs if pair.form in forms}):
            pairs = [pair for pair in self.pairs if pair.form == form]
            if len({pair.measurement.origin for pair in pairs}) < 2:
                continue
            self.progress(f"several devices, {form}")
            validation = cross_validate_scaling(pairs)
            rows += [replace(row, basis="modelled") for row in validation.score()]
            perfect += replace(validation, predicted_s=tuple(pair.single_s for pair in pairs)).score()
        pool = tuple(row.measurement for row in rows)
        return HeldOutPredictions(rows=tuple(rows), baselines={"perfect_scaling": tuple(perfect)}, pool=pool)

"""Cross-validation: predictions by fits without each group of samples (architecture, accelerator, publisher)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from gpuplan.predict.coefficients import Coefficients, FittedCoefficients
from gpuplan.predict.intervals import FEATURES, IntervalModel, TimeBreakdown, compute_features
from gpuplan.predict.measured_run import FitSample
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.modelled_step import model_step
from gpuplan.predict.scores import BASELINES, ScoredRow, predict_baseline_s

from .interval_fit import FeaturedResidual, fit_interval_model
from .subset_fits import fit_subsets

Progress = Callable[[str], None]
Keep = Callable[[Measurement], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSample:
    """A measurement with the inputs of its prediction."""

    measurement: Measurement
    fit_sample: FitSample


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """Predictions of each sample by a fit without its group.

    Args:
        samples: All samples.
        groups: Held-out group of each sample.
        predicted_s: Predicted time of each sample [s].
        baseline_s: Times of the baselines, by name [s].
        fits: Fits without each group; the key "" is the fit on all samples.
        factors: Factors of the prior spreads that each of them chose.
        breakdowns: Time breakdown of each predicted step: features of its interval.
        known_features: Features of the interval of each sample, if these are only some of the samples.
    """

    samples: tuple[LabelledSample, ...]
    groups: tuple[str, ...]
    predicted_s: tuple[float, ...]
    breakdowns: tuple[TimeBreakdown, ...]
    baseline_s: dict[str, tuple[float, ...]] = field(default_factory=dict)
    fits: dict[str, FittedCoefficients] = field(default_factory=dict)
    factors: dict[str, dict[str, float]] = field(default_factory=dict)
    known_features: tuple[dict[str, float], ...] = ()

    @property
    def log_ratios(self) -> list[float]:
        """Residuals log(measured / predicted) of the samples [-]."""
        return self._compute_log_ratios(self.predicted_s)

    def _compute_log_ratios(self, predicted_s: Sequence[float]) -> list[float]:
        pairs = zip(self.samples, predicted_s, strict=True)
        return [math.log(sample.fit_sample.step_s / time_s) for sample, time_s in pairs]

    def fit_without(self, measurement: Measurement, name_of: Callable[[Measurement], str]) -> FittedCoefficients:
        """Return the fit without the group of a measurement, see `find_group`."""
        return self.fits[self.find_group(measurement, name_of)]

    def where(self, keep: Callable[[Measurement], bool]) -> CrossValidation:
        """Return the samples whose measurement passes a filter, predicted by the same fits."""
        kept = [i for i, sample in enumerate(self.samples) if keep(sample.measurement)]

        def of(column: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(column[i] for i in kept)

        return replace(
            self,
            samples=of(self.samples),
            groups=of(self.groups),
            predicted_s=of(self.predicted_s),
            baseline_s={baseline: of(times) for baseline, times in self.baseline_s.items()},
            breakdowns=of(self.breakdowns),
            known_features=of(self.features),
        )

    def predicted_by_fit_without(self, group: str) -> CrossValidation:
        """Return all samples as predicted by the fit without one group."""
        every = range(len(self.samples))
        baselines = _predict_baselines(self.samples, every, without=group, groups=self.groups)
        steps = [model_step(sample.fit_sample, self.fits[group]) for sample in self.samples]
        return replace(
            self,
            predicted_s=tuple(step.total_s for step in steps),
            breakdowns=tuple(step.breakdown for step in steps),
            baseline_s={name: tuple(times[i] for i in every) for name, times in baselines.items()},
            known_features=(),
        )

    def score(self, *, basis: str = "modelled", judged: Keep = lambda _: True) -> list[ScoredRow]:
        """Return the predictions as rows, each with an interval calibrated on residuals of *other* groups.

        Args:
            basis: Of the rows.
            judged: Which of them to return; intervals are calibrated on all, as those of users are.
        """
        return self._score(self.predicted_s, self.features, basis=basis, judged=judged)

    def score_baseline(self, name: str, *, judged: Keep = lambda _: True) -> list[ScoredRow]:
        """Return the predictions of a baseline as rows; its residuals have one scale."""
        blank = [dict.fromkeys(FEATURES, 0.0)] * len(self.samples)
        return self._score(self.baseline_s[name], blank, basis=name, judged=judged)

    def _score(
        self, predicted_s: Sequence[float], features: Sequence[Mapping[str, float]], *, basis: str, judged: Keep
    ) -> list[ScoredRow]:
        residuals = self._build_residuals(predicted_s, features)
        models = {
            group: fit_interval_model([one for one in residuals if one.group != group] or residuals)
            for group in set(self.groups)
        }
        return [
            ScoredRow(
                measurement=sample.measurement,
                predicted_s=models[residual.group].compute_interval(mid_s, residual.features),
                basis=basis,
            )
            for sample, mid_s, residual in zip(self.samples, predicted_s, residuals, strict=True)
            if judged(sample.measurement)
        ]

    @cached_property
    def features(self) -> tuple[dict[str, float], ...]:
        """Features of the interval of each sample: what the fit without its group knows."""
        if self.known_features:
            return self.known_features
        chips, origins = (_find_groups(self, attrgetter(f"measurement.{name}")) for name in ("chip", "origin"))
        stacks = _find_groups(self, attrgetter("fit_sample.stack"))
        found = []
        columns = (self.samples, self.groups, self.breakdowns, self.predicted_s)
        for sample, group, breakdown, step_s in zip(*columns, strict=True):
            m = sample.measurement
            features = compute_features(
                breakdown,
                on_tensor_units=bool(sample.fit_sample.chip.tensor.any()),
                mode=m.mode,
                compiled=m.compiled,
                step_s=step_s,
                chip_year=sample.fit_sample.year,
                is_chip_measured=bool(chips[m.chip] - {group}),
                is_stack_measured=bool(stacks[sample.fit_sample.stack] - {group}),
                software_year=sample.fit_sample.software_year,
                is_publisher_known=bool(origins[m.origin] - {group}),
            )
            found.append(features)
        return tuple(found)

    @property
    def residuals(self) -> list[FeaturedResidual]:
        """Residuals of the predictions with their features, grouped by held-out group."""
        return self._build_residuals(self.predicted_s, self.features)

    def _build_residuals(
        self, predicted_s: Sequence[float], features: Sequence[Mapping[str, float]]
    ) -> list[FeaturedResidual]:
        columns = zip(self._compute_log_ratios(predicted_s), self.groups, features, strict=True)
        return [FeaturedResidual(*row) for row in columns]

    def fit_intervals(self, *, without: str = "") -> IntervalModel:
        """Return the intervals for an unseen group, from the residuals of all groups but one."""
        residuals = self.residuals
        return fit_interval_model([one for one in residuals if one.group != without] or residuals)

    def find_group(self, measurement: Measurement, name_of: Callable[[Measurement], str]) -> str:
        """Return the group of a measurement, which need not be among the samples; "" if it is in none.

        Args:
            measurement: Any measurement.
            name_of: Attribute by which groups were formed: family, origin.
        """
        names = zip(self.samples, self.groups, strict=True)
        return {name_of(sample.measurement): group for sample, group in names}.get(name_of(measurement), "")


def _find_groups(validation: CrossValidation, name_of: Callable[[LabelledSample], str]) -> dict[str, set[str]]:
    """Return the groups in which each chip, publisher or stack occurs."""
    found: dict[str, set[str]] = {}
    for sample, group in zip(validation.samples, validation.groups, strict=True):
        found.setdefault(name_of(sample), set()).add(group)
    return found


def predict_sample_s(sample: FitSample, fitted: FittedCoefficients | Coefficients) -> float:
    """Return the modelled time of a sample [s]."""
    return model_step(sample, fitted).total_s


def assign_folds(names: Sequence[str], *, alone_from: int, folds: int) -> dict[str, str]:
    """Return the fold of each name: names with many rows alone, the others in folds of similar size.

    Several names per fold require fewer fits, and make the test stricter than leaving out one name at a time.

    Args:
        names: Name of each row.
        alone_from: Least number of rows of a name for a separate fold [-].
        folds: Number of folds for the other names [-].

    Example:
        >>> assign_folds(["a", "a", "a", "b", "c", "d"], alone_from=3, folds=2)
        {'a': 'a', 'b': 'others 1', 'c': 'others 2', 'd': 'others 1'}
    """
    counts = Counter(names)
    sizes = [0] * folds
    found: dict[str, str] = {}
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count >= alone_from:
            found[name] = name
            continue
        smallest = sizes.index(min(sizes))
        sizes[smallest] += count
        found[name] = f"others {smallest + 1}"
    return found


def cross_validate(
    samples: Sequence[LabelledSample],
    *,
    group_of: Callable[[LabelledSample], str],
    progress: Progress,
    inner: Sequence[str] = (),
    whole: FittedCoefficients | None = None,
) -> CrossValidation:
    """Fit once without each group and predict the group.

    Every fit starts from the priors: warm-starting from the fit on all samples would leak the held-out group.

    Args:
        samples: All samples.
        group_of: Group of a sample.
        progress: Callback with the name of the group that is fitted without.
        inner: Groups by which each fit chooses its spreads among the samples that it has; may be empty.
        whole: Fit on all samples, if there is one already.
    """
    groups = [group_of(sample) for sample in samples]
    subsets = {
        group: [row for row, own in enumerate(groups) if own != group]
        for group in ([] if whole else [""]) + sorted(set(groups))
    }
    fits = {"": whole} if whole else {}
    found = fit_subsets([sample.fit_sample for sample in samples], subsets, groups=inner, progress=progress)
    fits |= {group: fitted for group, (fitted, _) in found.items()}
    steps = [model_step(e.fit_sample, fits[g]) for e, g in zip(samples, groups, strict=True)]
    return CrossValidation(
        samples=tuple(samples),
        groups=tuple(groups),
        predicted_s=tuple(step.total_s for step in steps),
        baseline_s=cross_validate_baselines(samples, groups),
        fits=fits,
        factors={group: factors for group, (_, factors) in found.items()},
        breakdowns=tuple(step.breakdown for step in steps),
    )


def cross_validate_baselines(
    samples: Sequence[LabelledSample], groups: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return the time of each sample by each baseline, its constant fitted on the other groups [s]."""
    found: dict[str, dict[int, float]] = {name: {} for name in BASELINES}
    for group in set(groups):
        held = [i for i, own in enumerate(groups) if own == group]
        for name, times in _predict_baselines(samples, held, without=group, groups=groups).items():
            found[name].update(times)
    return {name: tuple(times[i] for i in range(len(samples))) for name, times in found.items()}


def _predict_baselines(
    samples: Sequence[LabelledSample], held: Sequence[int], *, without: str, groups: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Return the baselines' times of held-out samples by index [s]; constants are fitted per mode if possible."""
    found: dict[str, dict[int, float]] = {name: {} for name in BASELINES}
    rest = [e for e, group in zip(samples, groups, strict=True) if group != without]
    for mode in ("train", "infer"):
        ours = [i for i in held if samples[i].measurement.mode == mode]
        if not ours:
            continue
        same_mode = [e.fit_sample for e in rest if e.measurement.mode == mode]
        fit_on = same_mode or [e.fit_sample for e in rest]
        fit_samples = [samples[i].fit_sample for i in ours]
        for name, baseline in BASELINES.items():
            found[name].update(zip(ours, predict_baseline_s(baseline, fit_on, fit_samples), strict=True))
    return found

"""Errors on what a fit has not seen: leaving out architectures or accelerators, one after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..predict.coefficients import Coefficients
from ..predict.interval.quantiles import interval_around
from ..predict.interval.similarity import TimeBreakdown
from ..predict.measurements import Measurement
from ..predict.parameter_vector import FittedCoefficients
from ..predict.predictor import ModelledStep, model_step
from ..predict.run_config import classify_stack, name_stack
from .baselines import BASELINES, predict_baseline_s
from .calibration_sets import (
    CalibrationKey,
    CalibrationSet,
    Residual,
    compute_union_bounds,
    select_calibration_sets,
)
from .fit import FitSample, fit
from .scores import ScoredRow

__all__ = [
    "CrossValidation",
    "LabelledSample",
    "assign_folds",
    "cross_validate",
    "cross_validate_baselines",
    "model_sample",
    "predict_sample_s",
]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSample:
    """A measurement and what the formulas need to predict it."""

    measurement: Measurement
    case: FitSample


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossValidation:
    """Predictions of every example by a fit without its group.

    ``log_ratios`` are log(measured / predicted), in the order of the examples; ``naive_s`` the rules' times;
    ``fits`` what was fitted without each group, under "" without any. ``unlike`` says that the groups are few and
    each is off in its own way, as publishers are: intervals are widened for the next one. ``kin`` names what each
    group is one of, as a chip is of an era: where there are errors on other groups of its kin, they alone make
    its interval, widened as well. Empty: no group is closer to one than to another. ``makeups`` are what the
    predicted steps consist of: errors on steps alike count more for an interval. Empty: they all count the same.
    """

    examples: tuple[LabelledSample, ...]
    groups: tuple[str, ...]
    predicted_s: tuple[float, ...]
    naive_s: dict[str, tuple[float, ...]]
    fits: dict[str, FittedCoefficients] = field(default_factory=dict)
    unlike: bool = False
    kin: tuple[str, ...] = ()
    makeups: tuple[TimeBreakdown, ...] = ()

    @property
    def log_ratios(self) -> list[float]:
        """Return log(measured / predicted) of each example."""
        return [
            math.log(example.case.step_s / predicted)
            for example, predicted in zip(self.examples, self.predicted_s, strict=True)
        ]

    def fit_without(
        self, measurement: Measurement, name_of: Callable[[Measurement], str]
    ) -> FittedCoefficients:
        """Return the fit that has seen no row of a measurement's name, though it is none of the examples.

        Args:
            measurement: Of whatever kind.
            name_of: What was left out together, or packed into one group: the family, the source.
        """
        names = zip(self.examples, self.groups, strict=True)
        group = {name_of(example.measurement): group for example, group in names}.get(name_of(measurement))
        return self.fits["" if group is None else group]

    def where(self, keep: Callable[[Measurement], bool]) -> CrossValidation:
        """Return the examples whose measurement passes, predicted by the same fits."""
        kept = [i for i, example in enumerate(self.examples) if keep(example.measurement)]

        def of(column: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(column[i] for i in kept)

        return replace(
            self, examples=of(self.examples), groups=of(self.groups), predicted_s=of(self.predicted_s),
            naive_s={rule: of(times) for rule, times in self.naive_s.items()},
            kin=of(self.kin) if self.kin else (), makeups=of(self.makeups) if self.makeups else (),
        )  # fmt: skip

    def by_fit_without(self, group: str) -> CrossValidation:
        """Return every example as the one fit without a group predicts it: the group's are new to it alone."""
        every = range(len(self.examples))
        rules = _by_rules(self.examples, every, without=group, groups=self.groups)
        steps = [model_sample(e.case, self.fits[group]) for e in self.examples]
        return replace(
            self, predicted_s=tuple(step.total_s for step in steps),
            makeups=tuple(step.makeup for step in steps) if self.makeups else (),
            naive_s={name: tuple(times[i] for i in every) for name, times in rules.items()},
        )  # fmt: skip

    def scored(
        self, predicted_s: Sequence[float] | None = None, *, basis: str = "modelled"
    ) -> list[ScoredRow]:
        """Return rows with an interval each, made of the errors on *other* groups only.

        Args:
            predicted_s: Somebody else's predictions, who knows no makeup of a step; None: these [s].
            basis: What the rows say of where the times come from.
        """
        mids = self.predicted_s if predicted_s is None else predicted_s
        logs = [math.log(e.case.step_s / mid) for e, mid in zip(self.examples, mids, strict=True)]
        makeups = self.makeups if predicted_s is None and self.makeups else (None,) * len(logs)
        kin = self.kin or ("",) * len(logs)
        places = [
            CalibrationKey(group, classify_stack(e.measurement), name_stack(e.measurement), whose)
            for group, e, whose in zip(self.groups, self.examples, kin, strict=True)
        ]
        guides = {place: self._guides(place, logs) for place in set(places)}
        wanted = list(zip(places, makeups, strict=True))
        ends = {(place, makeup): compute_union_bounds(guides[place], makeup) for place, makeup in set(wanted)}
        return [
            ScoredRow(
                measurement=example.measurement, predicted_s=interval_around(mid, *ends[where]), basis=basis
            )
            for example, mid, where in zip(self.examples, mids, wanted, strict=True)
        ]

    def intervals(self, *, kin: str = "", kinds: Sequence[str] = ()) -> dict[str, tuple[float, float]]:
        """Return, for each kind of stack, the interval for a group and a stack that are none of these.

        Args:
            kin: What the group is one of; empty: of nothing that is known.
            kinds: Of stacks; none: those that occur.
        """
        kinds = kinds or sorted({classify_stack(e.measurement) for e in self.examples})
        logs = self.log_ratios
        return {
            kind: compute_union_bounds(self._guides(CalibrationKey("", kind, "", kin), logs), None)
            for kind in kinds
        }

    def _guides(self, place: CalibrationKey, logs: Sequence[float]) -> list[CalibrationSet]:
        nothing = (None,) * len(logs)
        measured = [e.measurement for e in self.examples]
        kin, makeups = self.kin or ("",) * len(logs), self.makeups or nothing
        columns = zip(logs, self.groups, kin, measured, makeups, strict=True)
        return select_calibration_sets(place, [Residual(*row) for row in columns], unlike=self.unlike)


def model_sample(case: FitSample, fitted: FittedCoefficients | Coefficients) -> ModelledStep:
    """Return the modelled time of a case and its parts; what the fit has not seen gets the mean of its kind."""
    return model_step(
        case.table, case.chip, fitted, generation=case.generation, stack=case.stack, host=case.host,
        year=case.year, compiled=case.compiled, input_bytes=case.input_bytes, pressure=case.pressure,
        software_year=case.software_year,
    )  # fmt: skip


def predict_sample_s(case: FitSample, fitted: FittedCoefficients | Coefficients) -> float:
    """Return the modelled time of a case [s]."""
    return model_sample(case, fitted).total_s


def assign_folds(names: Sequence[str], *, alone_from: int, folds: int) -> dict[str, str]:
    """Return the fold of each name: names with many rows alone, the others packed into folds of like size.

    Leaving several out at once is stricter than one by one, and saves fits.

    Args:
        names: One a row.
        alone_from: Rows from which a name is a fold of its own [-].
        folds: Folds for the others [-].

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
    examples: Sequence[LabelledSample],
    *,
    group_of: Callable[[LabelledSample], str],
    progress: Progress,
    unlike: bool = False,
    kin_of: Callable[[LabelledSample], str] | None = None,
    by_makeup: bool = False,
) -> CrossValidation:
    """Fit once without each group and predict the group.

    Each search begins where that of everything begins, never at its end: one that began there, and ended before
    the minimum, would still know what was left out. ``unlike``, ``kin_of``, ``by_makeup``: see `CrossValidation`.
    """
    groups = [group_of(example) for example in examples]
    fits: dict[str, FittedCoefficients] = {"": fit([example.case for example in examples])}
    for group in sorted(set(groups)):
        progress(group)
        fits[group] = fit([e.case for e, g in zip(examples, groups, strict=True) if g != group])
    steps = [model_sample(e.case, fits[g]) for e, g in zip(examples, groups, strict=True)]
    return CrossValidation(
        examples=tuple(examples), groups=tuple(groups), predicted_s=tuple(step.total_s for step in steps),
        naive_s=cross_validate_baselines(examples, groups), fits=fits, unlike=unlike,
        kin=tuple(map(kin_of, examples)) if kin_of is not None else (),
        makeups=tuple(step.makeup for step in steps) if by_makeup else (),
    )  # fmt: skip


def cross_validate_baselines(
    examples: Sequence[LabelledSample], groups: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return what each rule of thumb makes of each example, its constant fitted on the other groups [s]."""
    found: dict[str, dict[int, float]] = {name: {} for name in BASELINES}
    for group in set(groups):
        held = [i for i, own in enumerate(groups) if own == group]
        for name, times in _by_rules(examples, held, without=group, groups=groups).items():
            found[name].update(times)
    return {name: tuple(times[i] for i in range(len(examples))) for name, times in found.items()}


def _by_rules(
    examples: Sequence[LabelledSample], held: Sequence[int], *, without: str, groups: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Return what rules of thumb make of examples [s], their constants fitted on others, of their mode if any."""
    found: dict[str, dict[int, float]] = {name: {} for name in BASELINES}
    rest = [e for e, group in zip(examples, groups, strict=True) if group != without]
    for mode in ("train", "infer"):
        ours = [i for i in held if examples[i].measurement.mode == mode]
        if not ours:
            continue
        alike = [e.case for e in rest if e.measurement.mode == mode] or [e.case for e in rest]
        cases = [examples[i].case for i in ours]
        for name, rule in BASELINES.items():
            found[name].update(zip(ours, predict_baseline_s(rule, alike, cases), strict=True))
    return found

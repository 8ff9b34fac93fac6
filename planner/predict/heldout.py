"""Errors on what a fit has not seen: leaving out architectures or accelerators, one after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .coefficients import Coefficients
from .corpus import Measurement
from .fit import Case, fit
from .interval import LEVEL, around, equal_weights, weighted_quantile
from .layout import Fitted
from .naive import RULES, predict_naively
from .predictor import ModelledStep, model_step
from .score import ScoredRow

__all__ = ["Example", "HeldOut", "interval_of", "leave_out", "model_case", "packed", "predict_case"]

FEWEST_GROUPS = 3  # with errors on fewer groups a stack has no interval of its own
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A measurement and what the formulas need to predict it."""

    measurement: Measurement
    case: Case


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of every example by a fit without its group.

    ``log_ratios`` are log(measured / predicted), in the order of the examples; ``naive_s`` the rules' times;
    ``fits`` what was fitted without each group, under "" without any.
    """

    examples: tuple[Example, ...]
    groups: tuple[str, ...]
    predicted_s: tuple[float, ...]
    naive_s: dict[str, tuple[float, ...]]
    fits: dict[str, Fitted] = field(default_factory=dict)

    @property
    def log_ratios(self) -> list[float]:
        """Return log(measured / predicted) of each example."""
        return [
            math.log(example.case.step_s / predicted)
            for example, predicted in zip(self.examples, self.predicted_s, strict=True)
        ]

    def fit_without(self, measurement: Measurement, name_of: Callable[[Measurement], str]) -> Fitted:
        """Return the fit that has seen no row of a measurement's name, though it is none of the examples.

        Args:
            measurement: Of whatever kind.
            name_of: What was left out together, or packed into one group: the family, the source.
        """
        names = zip(self.examples, self.groups, strict=True)
        group = {name_of(example.measurement): group for example, group in names}.get(name_of(measurement))
        return self.fits["" if group is None else group]

    def scored(
        self, predicted_s: Sequence[float] | None = None, *, basis: str = "modelled"
    ) -> list[ScoredRow]:
        """Return rows with an interval each, made of the errors on the *other* groups of the same stack only."""
        mids = self.predicted_s if predicted_s is None else predicted_s
        logs = [math.log(e.case.step_s / mid) for e, mid in zip(self.examples, mids, strict=True)]
        kinds = [e.measurement.stack for e in self.examples]
        ends = {
            (group, kind): self._interval_without(group, kind, logs)
            for group, kind in set(zip(self.groups, kinds, strict=True))
        }
        return [
            ScoredRow(
                measurement=example.measurement, predicted_s=around(mid, *ends[group, kind]), basis=basis
            )
            for example, mid, group, kind in zip(self.examples, mids, self.groups, kinds, strict=True)
        ]

    def _interval_without(self, group: str, kind: str, logs: Sequence[float]) -> tuple[float, float]:
        each = zip(logs, self.groups, self.examples, strict=True)
        kept = [(log, other, e.measurement.stack) for log, other, e in each if other != group]
        alike = [(log, other) for log, other, stack in kept if stack == kind]
        if len({other for _, other in alike}) < FEWEST_GROUPS:
            alike = [(log, other) for log, other, _ in kept]
        return interval_of([log for log, _ in alike], [other for _, other in alike])

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return, for each stack, the interval for a group that is none of these."""
        stacks = {e.measurement.stack for e in self.examples}
        return {stack: self._interval_without("", stack, self.log_ratios) for stack in sorted(stacks)}


def interval_of(log_ratios: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """Return the 10th and 90th percentile of log ratios, every group weighing the same."""
    weights = equal_weights(groups)
    tail = (1.0 - LEVEL) / 2.0
    low = -weighted_quantile([-log for log in log_ratios], weights, 1.0 - tail)
    return low, weighted_quantile(log_ratios, weights, 1.0 - tail)


def model_case(case: Case, fitted: Fitted | Coefficients) -> ModelledStep:
    """Return the modelled time of a case and its parts; what the fit has not seen gets the mean of its kind."""
    return model_step(
        case.table, case.chip, fitted, generation=case.generation, stack=case.stack, host=case.host,
        year=case.year, compiled=case.compiled, input_bytes=case.input_bytes, pressure=case.pressure,
    )  # fmt: skip


def predict_case(case: Case, fitted: Fitted | Coefficients) -> float:
    """Return the modelled time of a case [s]."""
    return model_case(case, fitted).total_s


def packed(names: Sequence[str], *, alone_from: int, folds: int) -> dict[str, str]:
    """Return the fold of each name: names with many rows alone, the others packed into folds of like size.

    Leaving several out at once is stricter than one by one, and saves fits.

    Args:
        names: One a row.
        alone_from: Rows from which a name is a fold of its own [-].
        folds: Folds for the others [-].

    Example:
        >>> packed(["a", "a", "a", "b", "c", "d"], alone_from=3, folds=2)
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


def leave_out(
    examples: Sequence[Example], *, group_of: Callable[[Example], str], progress: Progress
) -> HeldOut:
    """Fit once without each group and predict the group.

    The searches begin at the fit of everything and end at the minimum for what is left.
    """
    whole = fit([example.case for example in examples])
    groups = [group_of(example) for example in examples]
    predicted: dict[int, float] = {}
    naive: dict[str, dict[int, float]] = {rule: {} for rule in RULES}
    fits: dict[str, Fitted] = {"": whole}
    for group in sorted(set(groups)):
        progress(group)
        rest = [e.case for e, g in zip(examples, groups, strict=True) if g != group]
        held = [i for i, g in enumerate(groups) if g == group]
        fits[group] = fitted = fit(rest, near=whole)
        for i in held:
            predicted[i] = predict_case(examples[i].case, fitted)
        for name, rule in RULES.items():
            times = predict_naively(rule, rest, [examples[i].case for i in held])
            naive[name].update(zip(held, times, strict=True))
    order = range(len(examples))
    return HeldOut(
        examples=tuple(examples), groups=tuple(groups), predicted_s=tuple(predicted[i] for i in order),
        naive_s={name: tuple(times[i] for i in order) for name, times in naive.items()},
        fits=fits,
    )  # fmt: skip

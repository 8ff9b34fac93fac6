"""Errors on what a fit has not seen: leaving out architectures or accelerators, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .coefficients import Coefficients
from .corpus import Measurement
from .fit import Case, Fitted, fit
from .interval import LEVEL, around, equal_weights, weighted_quantile
from .naive import RULES, predict_naively
from .predictor import ModelledStep, model_step
from .score import ScoredRow

__all__ = ["Example", "HeldOut", "interval_of", "leave_out", "model_case", "predict_case"]

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
    ``fits`` what was fitted without each group.
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

    def scored(
        self, predicted_s: Sequence[float] | None = None, *, basis: str = "modelled"
    ) -> list[ScoredRow]:
        """Return rows with an interval each, made of the errors on the *other* groups only."""
        mids = self.predicted_s if predicted_s is None else predicted_s
        logs = [math.log(e.case.step_s / mid) for e, mid in zip(self.examples, mids, strict=True)]
        ends = {group: self._interval_without(group, logs) for group in set(self.groups)}
        return [
            ScoredRow(measurement=example.measurement, predicted_s=around(mid, *ends[group]), basis=basis)
            for example, mid, group in zip(self.examples, mids, self.groups, strict=True)
        ]

    def _interval_without(self, group: str, logs: Sequence[float]) -> tuple[float, float]:
        kept = [(log, other) for log, other in zip(logs, self.groups, strict=True) if other != group]
        return interval_of([log for log, _ in kept], [other for _, other in kept])


def interval_of(log_ratios: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """Return the 10th and 90th percentile of log ratios, every group weighing the same."""
    weights = equal_weights(groups)
    tail = (1.0 - LEVEL) / 2.0
    low = -weighted_quantile([-log for log in log_ratios], weights, 1.0 - tail)
    return low, weighted_quantile(log_ratios, weights, 1.0 - tail)


def model_case(case: Case, fitted: Fitted | Coefficients, *, generation: str | None = None) -> ModelledStep:
    """Return the modelled time of a case and its parts."""
    coefficients = Coefficients(
        generations=fitted.generations, shared=fitted.shared, hosts=fitted.hosts, intervals={}, fitted_on={}
    )
    return model_step(
        case.table, case.chip, fitted.generations[generation or case.generation], coefficients,
        compiled=case.compiled, input_bytes=case.input_bytes, host=case.host,
    )  # fmt: skip


def predict_case(case: Case, fitted: Fitted, *, generation: str | None = None) -> float:
    """Return the modelled time of a case [s]."""
    return model_case(case, fitted, generation=generation).total_s


def leave_out(
    examples: Sequence[Example], *, group_of: Callable[[Example], str], progress: Progress,
    generation_of: Callable[[Case, Fitted], str] = lambda case, _: case.generation,
) -> HeldOut:  # fmt: skip
    """Fit once without each group and predict the group."""
    groups = [group_of(example) for example in examples]
    predicted: dict[int, float] = {}
    naive: dict[str, dict[int, float]] = {rule: {} for rule in RULES}
    fits: dict[str, Fitted] = {}
    for group in sorted(set(groups)):
        progress(group)
        rest = [e.case for e, g in zip(examples, groups, strict=True) if g != group]
        held = [i for i, g in enumerate(groups) if g == group]
        fits[group] = fitted = fit(rest)
        for i in held:
            case = examples[i].case
            predicted[i] = predict_case(case, fitted, generation=generation_of(case, fitted))
        for name, rule in RULES.items():
            times = predict_naively(rule, rest, [examples[i].case for i in held])
            naive[name].update(zip(held, times, strict=True))
    order = range(len(examples))
    return HeldOut(
        examples=tuple(examples), groups=tuple(groups), predicted_s=tuple(predicted[i] for i in order),
        naive_s={name: tuple(times[i] for i in order) for name, times in naive.items()},
        fits=fits,
    )  # fmt: skip

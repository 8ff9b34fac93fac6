"""Errors on what a fit has not seen: leaving out architectures or accelerators, one after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .coefficients import Coefficients
from .corpus import Measurement
from .fit import Case, fit
from .interval import around, interval_of, nested_interval, outer
from .layout import Fitted
from .naive import RULES, predict_naively
from .predictor import ModelledStep, model_step
from .runs import stack_of
from .score import ScoredRow

__all__ = ["Example", "HeldOut", "leave_out", "model_case", "packed", "predict_case"]

ENOUGH_GROUPS = (
    9  # an 80 % interval leaves a tenth on either side: the share of the next group where nine are known
)
FEWEST_GROUPS = 3  # with errors on fewer groups a kind of stack has no interval of its own
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
    ``fits`` what was fitted without each group, under "" without any. ``unlike`` says that the groups are few and
    each is off in its own way, as publishers are: intervals are widened for the next one.
    """

    examples: tuple[Example, ...]
    groups: tuple[str, ...]
    predicted_s: tuple[float, ...]
    naive_s: dict[str, tuple[float, ...]]
    fits: dict[str, Fitted] = field(default_factory=dict)
    unlike: bool = False

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
        """Return rows with an interval each, made of the errors on *other* groups only."""
        mids = self.predicted_s if predicted_s is None else predicted_s
        logs = [math.log(e.case.step_s / mid) for e, mid in zip(self.examples, mids, strict=True)]
        places = [
            (group, e.measurement.stack, stack_of(e.measurement))
            for group, e in zip(self.groups, self.examples, strict=True)
        ]
        ends = {place: self._interval_without(*place, logs) for place in set(places)}
        return [
            ScoredRow(measurement=example.measurement, predicted_s=around(mid, *ends[place]), basis=basis)
            for example, mid, place in zip(self.examples, mids, places, strict=True)
        ]

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return, for each kind of stack, the interval for a group and a stack that are none of these."""
        kinds = sorted({e.measurement.stack for e in self.examples})
        return {kind: self._interval_without("", kind, "", self.log_ratios) for kind in kinds}

    def _interval_without(
        self, group: str, kind: str, stack: str, logs: Sequence[float]
    ) -> tuple[float, float]:
        """Return the interval made of the errors on other groups: of the very stack, of its kind, or of all."""
        each = zip(logs, self.groups, self.examples, strict=True)
        kept = [(log, other, e.measurement) for log, other, e in each if other != group]
        alike = [one for one in kept if one[2].stack == kind]
        same = [one for one in alike if stack_of(one[2]) == stack]
        if _groups_in(same) >= ENOUGH_GROUPS:
            return self._ends_of(same)
        if _groups_in(alike) < FEWEST_GROUPS:
            return self._ends_of(kept)
        if self.unlike and _groups_in(alike) < ENOUGH_GROUPS:  # which may widen the interval, not narrow it
            return outer(self._ends_of(alike), self._ends_of(kept))
        return self._ends_of(alike)

    def _ends_of(self, errors: Sequence[tuple[float, str, Measurement]]) -> tuple[float, float]:
        made_of = nested_interval if self.unlike else interval_of
        return made_of([log for log, _, _ in errors], [group for _, group, _ in errors])


def _groups_in(errors: Sequence[tuple[float, str, Measurement]]) -> int:
    return len({group for _, group, _ in errors})


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
    examples: Sequence[Example],
    *,
    group_of: Callable[[Example], str],
    progress: Progress,
    unlike: bool = False,
) -> HeldOut:
    """Fit once without each group and predict the group.

    The searches begin at the fit of everything and end at the minimum for what is left. ``unlike``: see `HeldOut`.
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
        fits=fits, unlike=unlike,
    )  # fmt: skip

"""Whose errors make an interval: those on other groups that are most like what it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from ..predict.interval.quantiles import compute_log_bounds, compute_nested_log_bounds, union
from ..predict.interval.similarity import TimeBreakdown, similarity_weight
from ..predict.measurements import Measurement
from ..predict.run_config import classify_stack, name_stack

__all__ = ["CalibrationKey", "CalibrationSet", "Residual", "compute_union_bounds", "select_calibration_sets"]

ENOUGH_GROUPS = (
    9  # an 80 % interval leaves a tenth on either side: the share of the next group where nine are known
)
FEWEST_GROUPS = (
    3  # with errors on fewer groups a kind of stack has no interval of its own; a kin has one more
)
LEAST_LIKE = 1e-9  # what steps of another makeup count: where there are no others, they tell of it
_MakesEnds = Callable[..., tuple[float, float]]  # `compute_log_bounds` or `compute_nested_log_bounds`


class Residual(NamedTuple):
    """What a prediction was off by, log(measured / predicted); its group, and what that is one of.

    ``makeup`` is what the step consists of; None where that is not looked at.
    """

    log: float
    group: str
    kin: str
    measurement: Measurement
    makeup: TimeBreakdown | None


class CalibrationKey(NamedTuple):
    """Where an interval is wanted: a group, a kind of stack, the stack, and what the group is one of."""

    group: str
    kind: str
    stack: str
    kin: str


class CalibrationSet(NamedTuple):
    """Errors, and how an interval is made of them."""

    errors: Sequence[Residual]
    made_of: _MakesEnds

    def ends(self, makeup: TimeBreakdown | None) -> tuple[float, float]:
        """Return the interval for a step of some makeup; None: of any."""
        logs, groups = [one.log for one in self.errors], [one.group for one in self.errors]
        alike = [] if makeup is None else [_weight(one, makeup) for one in self.errors]
        return self.made_of(logs, groups, alike=alike)


def _weight(error: Residual, makeup: TimeBreakdown) -> float:
    return LEAST_LIKE + (similarity_weight(error.makeup, makeup) if error.makeup else 1.0)


def select_calibration_sets(
    place: CalibrationKey, errors: Sequence[Residual], *, unlike: bool
) -> list[CalibrationSet]:
    """Return the errors on other groups that tell of a place: of its kin, the very stack, its kind, or all.

    Args:
        place: Where an interval is wanted.
        errors: On all groups, the place's own among them.
        unlike: Groups are few and each is off in its own way: the interval is widened for the next one. Where two
            sets of errors come back, each may widen it further.
    """
    akin = _of_kind(_akin(place, errors), place.kind)
    if akin:
        return [CalibrationSet(akin, compute_nested_log_bounds)]
    made_of = compute_nested_log_bounds if unlike else compute_log_bounds
    kept = _of_kind([one for one in errors if one.group != place.group], place.kind)
    alike = [one for one in kept if classify_stack(one.measurement) == place.kind]
    same = [one for one in alike if name_stack(one.measurement) == place.stack]
    if _groups_in(same) >= ENOUGH_GROUPS:
        return [CalibrationSet(same, made_of)]
    if _groups_in(alike) < FEWEST_GROUPS:
        return [CalibrationSet(kept, made_of)]
    if unlike and _groups_in(alike) < ENOUGH_GROUPS:
        return [CalibrationSet(alike, made_of), CalibrationSet(kept, made_of)]
    return [CalibrationSet(alike, made_of)]


def compute_union_bounds(
    guides: Sequence[CalibrationSet], makeup: TimeBreakdown | None
) -> tuple[float, float]:
    """Return the ends of the smallest interval that holds those of all guides."""
    return reduce(union, (guide.ends(makeup) for guide in guides))


def _akin(place: CalibrationKey, errors: Sequence[Residual]) -> list[Residual]:
    """Return the errors on other groups of a group's kin; nothing where too few groups are of it."""
    whole = [one for one in errors if place.kin and one.kin == place.kin]
    if _groups_in(whole) <= FEWEST_GROUPS:
        return []
    return [one for one in whole if one.group != place.group]


def _of_kind(errors: Sequence[Residual], kind: str) -> list[Residual]:
    """Return the errors that tell of a kind of stack: those on stacks that are gone tell of such alone."""
    found = [one for one in errors if classify_stack(one.measurement) in (kind, one.measurement.stack)]
    return found or list(errors)


def _groups_in(errors: Sequence[Residual]) -> int:
    return len({one.group for one in errors})

"""Select the residuals that calibrate a prediction interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from ..predict.interval.quantiles import compute_log_bounds, compute_nested_log_bounds, union
from ..predict.interval.similarity import TimeBreakdown, similarity_weight
from ..predict.measurements import Measurement
from ..predict.run_config import classify_stack, name_stack

__all__ = [
    "CalibrationKey",
    "CalibrationSet",
    "Residual",
    "compute_union_bounds",
    "select_calibration_sets",
]

ENOUGH_GROUPS = 9  # an 80 % interval leaves a tenth on either side: the share of the next group beside nine
FEWEST_GROUPS = 3  # least groups for an interval of one class of stack; one more for an era
LEAST_WEIGHT = 1e-9  # of a residual on a dissimilar step; decides only where there are no similar steps
_ComputeBounds = Callable[..., tuple[float, float]]  # `compute_log_bounds` or `compute_nested_log_bounds`


class Residual(NamedTuple):
    """Residual of a prediction.

    Args:
        log: log(measured / predicted) [-].
        group: Held-out group.
        era: Era of the group; empty if none.
        measurement: Measured step.
        breakdown: Time breakdown of the step; None for equal weights.
    """

    log: float
    group: str
    era: str
    measurement: Measurement
    breakdown: TimeBreakdown | None


class CalibrationKey(NamedTuple):
    """Key of a prediction interval: group, class of stack, stack, and era of the group."""

    group: str
    kind: str
    stack: str
    era: str


class CalibrationSet(NamedTuple):
    """Residuals and the function that computes an interval from them."""

    residuals: Sequence[Residual]
    compute_bounds: _ComputeBounds

    def bounds(self, breakdown: TimeBreakdown | None) -> tuple[float, float]:
        """Return the log bounds for a step, residuals weighted by similarity; None for equal weights."""
        logs, groups = [one.log for one in self.residuals], [one.group for one in self.residuals]
        weights = [] if breakdown is None else [_weight(one, breakdown) for one in self.residuals]
        return self.compute_bounds(logs, groups, similarity=weights)


def _weight(residual: Residual, breakdown: TimeBreakdown) -> float:
    return LEAST_WEIGHT + (similarity_weight(residual.breakdown, breakdown) if residual.breakdown else 1.0)


def select_calibration_sets(
    key: CalibrationKey, residuals: Sequence[Residual], *, few_groups: bool
) -> list[CalibrationSet]:
    """Return the residuals on other groups from the first level with enough groups.

    The levels: the same era, the same stack, the same class of stack, all stacks.

    Args:
        key: Key of the interval.
        residuals: Residuals on all groups, including the key's own.
        few_groups: Whether groups are few and heterogeneous, as publishers are: the interval is widened for an
            unseen group. Two sets may be returned; each may widen the interval.
    """
    same_era = _of_class(_select_era(key, residuals), key.kind)
    if same_era:
        return [CalibrationSet(same_era, compute_nested_log_bounds)]
    compute = compute_nested_log_bounds if few_groups else compute_log_bounds
    others = _of_class([one for one in residuals if one.group != key.group], key.kind)
    same_class = [one for one in others if classify_stack(one.measurement) == key.kind]
    same_stack = [one for one in same_class if name_stack(one.measurement) == key.stack]
    if _count_groups(same_stack) >= ENOUGH_GROUPS:
        return [CalibrationSet(same_stack, compute)]
    if _count_groups(same_class) < FEWEST_GROUPS:
        return [CalibrationSet(others, compute)]
    if few_groups and _count_groups(same_class) < ENOUGH_GROUPS:
        return [CalibrationSet(same_class, compute), CalibrationSet(others, compute)]
    return [CalibrationSet(same_class, compute)]


def compute_union_bounds(
    calibration_sets: Sequence[CalibrationSet], breakdown: TimeBreakdown | None
) -> tuple[float, float]:
    """Return the log bounds of the smallest interval that contains the intervals of all sets."""
    return reduce(union, (one.bounds(breakdown) for one in calibration_sets))


def _select_era(key: CalibrationKey, residuals: Sequence[Residual]) -> list[Residual]:
    """Return the residuals on other groups of the same era; none if the era has too few groups."""
    same_era = [one for one in residuals if key.era and one.era == key.era]
    if _count_groups(same_era) <= FEWEST_GROUPS:
        return []
    return [one for one in same_era if one.group != key.group]


def _of_class(residuals: Sequence[Residual], kind: str) -> list[Residual]:
    """Return the residuals on representative stacks; discontinued stacks represent only each other."""
    found = [one for one in residuals if classify_stack(one.measurement) in (kind, one.measurement.stack)]
    return found or list(residuals)


def _count_groups(residuals: Sequence[Residual]) -> int:
    return len({one.group for one in residuals})

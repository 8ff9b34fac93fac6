"""Whose errors make an interval: those on other groups that are most like what it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from ..predict.interval.quantiles import interval_of, nested_interval, outer
from ..predict.interval.similarity import Makeup, likeness
from ..predict.measurements import Measurement
from ..predict.run_config import kind_of_stack, stack_of

__all__ = ["Error", "Guide", "Place", "ends_of", "guides_for"]

ENOUGH_GROUPS = (
    9  # an 80 % interval leaves a tenth on either side: the share of the next group where nine are known
)
FEWEST_GROUPS = (
    3  # with errors on fewer groups a kind of stack has no interval of its own; a kin has one more
)
LEAST_LIKE = 1e-9  # what steps of another makeup count: where there are no others, they tell of it
_MakesEnds = Callable[..., tuple[float, float]]  # `interval_of` or `nested_interval`


class Error(NamedTuple):
    """What a prediction was off by, log(measured / predicted); its group, and what that is one of.

    ``makeup`` is what the step consists of; None where that is not looked at.
    """

    log: float
    group: str
    kin: str
    measurement: Measurement
    makeup: Makeup | None


class Place(NamedTuple):
    """Where an interval is wanted: a group, a kind of stack, the stack, and what the group is one of."""

    group: str
    kind: str
    stack: str
    kin: str


class Guide(NamedTuple):
    """Errors, and how an interval is made of them."""

    errors: Sequence[Error]
    made_of: _MakesEnds

    def ends(self, makeup: Makeup | None) -> tuple[float, float]:
        """Return the interval for a step of some makeup; None: of any."""
        logs, groups = [one.log for one in self.errors], [one.group for one in self.errors]
        alike = [] if makeup is None else [_weight(one, makeup) for one in self.errors]
        return self.made_of(logs, groups, alike=alike)


def _weight(error: Error, makeup: Makeup) -> float:
    return LEAST_LIKE + (likeness(error.makeup, makeup) if error.makeup else 1.0)


def guides_for(place: Place, errors: Sequence[Error], *, unlike: bool) -> list[Guide]:
    """Return the errors on other groups that tell of a place: of its kin, the very stack, its kind, or all.

    Args:
        place: Where an interval is wanted.
        errors: On all groups, the place's own among them.
        unlike: Groups are few and each is off in its own way: the interval is widened for the next one. Where two
            sets of errors come back, each may widen it further.
    """
    akin = _of_kind(_akin(place, errors), place.kind)
    if akin:
        return [Guide(akin, nested_interval)]
    made_of = nested_interval if unlike else interval_of
    kept = _of_kind([one for one in errors if one.group != place.group], place.kind)
    alike = [one for one in kept if kind_of_stack(one.measurement) == place.kind]
    same = [one for one in alike if stack_of(one.measurement) == place.stack]
    if _groups_in(same) >= ENOUGH_GROUPS:
        return [Guide(same, made_of)]
    if _groups_in(alike) < FEWEST_GROUPS:
        return [Guide(kept, made_of)]
    if unlike and _groups_in(alike) < ENOUGH_GROUPS:
        return [Guide(alike, made_of), Guide(kept, made_of)]
    return [Guide(alike, made_of)]


def ends_of(guides: Sequence[Guide], makeup: Makeup | None) -> tuple[float, float]:
    """Return the ends of the smallest interval that holds those of all guides."""
    return reduce(outer, (guide.ends(makeup) for guide in guides))


def _akin(place: Place, errors: Sequence[Error]) -> list[Error]:
    """Return the errors on other groups of a group's kin; nothing where too few groups are of it."""
    whole = [one for one in errors if place.kin and one.kin == place.kin]
    if _groups_in(whole) <= FEWEST_GROUPS:
        return []
    return [one for one in whole if one.group != place.group]


def _of_kind(errors: Sequence[Error], kind: str) -> list[Error]:
    """Return the errors that tell of a kind of stack: those on stacks that are gone tell of such alone."""
    found = [one for one in errors if kind_of_stack(one.measurement) in (kind, one.measurement.stack)]
    return found or list(errors)


def _groups_in(errors: Sequence[Error]) -> int:
    return len({one.group for one in errors})

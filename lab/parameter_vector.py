"""Parameter vector of the fit: columns and bounds of the coefficients, and conversion to named coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuplan.predict.coefficients import FittedCoefficients, era_sign, field_names
from gpuplan.predict.run_config import append_mode

from .priors import ERA_SPREAD_LOG, GROUPS, NEVER_LINEAR, NEVER_RISING, CoefficientGroup, name_spread_class

RANGES = tuple(bounds for group in GROUPS for bounds in group.ranges.values())
INFER_SPREAD_LOG = {(group.name, name): spread for group in GROUPS for name, spread in group.infer_log.items()}
INFER = append_mode("", "infer")  # ending of members that are inference
MEANS = len(RANGES) + len(ERA_SPREAD_LOG)  # columns before those of `INFER_SPREAD_LOG`


class CoefficientKeys(Protocol):
    """Whatever says which coefficients apply to it."""

    @property
    def generation(self) -> str: ...

    @property
    def stack(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def year(self) -> int: ...


@dataclass(frozen=True, slots=True)
class VectorLayout:
    """Columns of the vector of logs.

    The means first, then what the era adds to those of the generations, what inference adds, and what each member
    adds.
    """

    members: dict[str, tuple[str, ...]]
    years: dict[str, int]

    @staticmethod
    def of(members: Iterable[CoefficientKeys]) -> VectorLayout:
        """Return the layout for the members that occur in some cases."""
        samples = list(members)
        names = [group.name for group in GROUPS if group.name]
        return VectorLayout(
            {name: tuple(sorted({getattr(sample, name) for sample in samples})) for name in names},
            {sample.generation: sample.year for sample in samples},
        )

    def first(self, name: str) -> int:
        """Return the column of a group's first member."""
        column = MEANS + len(INFER_SPREAD_LOG)
        for group in GROUPS:
            if group.name == name:
                break
            column += len(self.members.get(group.name, ())) * len(group.ranges)
        return column

    @property
    def size(self) -> int:
        members = sum(len(self.members.get(group.name, ())) * len(group.ranges) for group in GROUPS)
        return MEANS + len(INFER_SPREAD_LOG) + members

    def columns(self, sample: CoefficientKeys) -> list[int]:
        """Return the column of the member's deviation for each coefficient of a sample; -1 if there is none."""
        columns: list[int] = []
        for group in GROUPS:
            width = len(group.ranges)
            if not group.name:
                columns += [-1] * width
                continue
            columns += self.columns_of(group, getattr(sample, group.name))
        return columns

    def columns_of(self, group: CoefficientGroup, member: str) -> range:
        """Return the columns of a member's deviations, in the order of the group's coefficients."""
        width = len(group.ranges)
        own = self.first(group.name) + self.members[group.name].index(member) * width
        return range(own, own + width)

    def ancestor_columns(self, sample: CoefficientKeys) -> tuple[list[int], list[int]]:
        """Return the columns of the deviations of the member's parent and of its parent, by coefficient.

        They are -1 where there is none among the cases.
        """
        parents, grandparents = [], []
        for group in GROUPS:
            member = getattr(sample, group.name) if group.name else ""
            for i, name in enumerate(group.ranges):
                parent = group.find_parent(member, name)
                parents.append(self.find_column(group, parent, i))
                grandparents.append(self.find_column(group, group.find_parent(parent, name), i))
        return parents, grandparents

    def infer_columns(self, sample: CoefficientKeys) -> list[int]:
        """Return the column of what inference adds, by coefficient; -1 where it adds nothing."""
        return [
            find_infer_column(group, getattr(sample, group.name) if group.name else "", name)
            for group in GROUPS
            for name in group.ranges
        ]

    def find_column(self, group: CoefficientGroup, member: str, i: int) -> int:
        """Return the column of a member's deviation of its i-th coefficient; -1 without cases."""
        known = member and member in self.members.get(group.name, ())
        return self.columns_of(group, member)[i] if known else -1


def find_infer_column(group: CoefficientGroup, member: str, name: str) -> int:
    """Return the column of what inference adds to a member's coefficient; -1 if it adds nothing."""
    added = member.endswith(INFER) and name in group.infer_log
    return MEANS + list(INFER_SPREAD_LOG).index((group.name, name)) if added else -1


def compute_bounds(layout: VectorLayout) -> tuple[Any, Any, Any, Any]:
    """Return lowest, highest, start and prior spread of each column, in logs."""
    import numpy as np

    logs = np.log(np.array(RANGES))
    spreads = [
        group.spreads_log(member, layout.members[group.name])
        for group in GROUPS
        if group.name
        for member in layout.members[group.name]
    ]
    extra = layout.size - len(RANGES)
    start = np.concatenate([logs[:, 0], np.zeros(extra)])
    low = np.concatenate([logs[:, 1], np.full(extra, -2.0)])
    rise = [0.0 if name in NEVER_RISING else 2.0 for name in ERA_SPREAD_LOG]
    high = np.concatenate([logs[:, 2], rise, np.full(extra - len(rise), 2.0)])
    high[len(RANGES) :] = np.maximum(high[len(RANGES) :], 1e-9)
    return (
        low,
        high,
        start,
        np.concatenate(
            [
                *(group.priors_log for group in GROUPS),
                list(ERA_SPREAD_LOG.values()),
                list(INFER_SPREAD_LOG.values()),
                *spreads,
            ]
        ),
    )


def list_spread_classes(layout: VectorLayout) -> list[str]:
    """Return the class of the prior spread of each column; "" where it is not chosen."""
    means = ["" if group.name else name_spread_class(group, "", name) for group in GROUPS for name in group.ranges]
    eras = [name_spread_class(GROUPS[0], "", name) for name in ERA_SPREAD_LOG]
    members = [
        name_spread_class(group, member, name)
        for group in GROUPS
        for member in layout.members.get(group.name, ())
        for name in group.ranges
    ]
    return means + eras + [""] * len(INFER_SPREAD_LOG) + members


def compute_robust_scales(layout: VectorLayout) -> Any:
    """Return the scale of the robust loss of each column in prior spreads [-].

    One odd generation must not move the mean that stands for generations never measured; everything else is
    pulled with the square.
    """
    import numpy as np

    means = np.full(MEANS + len(INFER_SPREAD_LOG), NEVER_LINEAR)
    members = [np.tile(group.robust_spreads, len(layout.members[group.name])) for group in GROUPS if group.name]
    return np.concatenate([means, *members])


def unpack_coefficients(logs: Any, layout: VectorLayout) -> FittedCoefficients:
    """Return named coefficients: the mean of each group under the empty name, and every member."""
    import numpy as np

    found: list[Any] = []
    mean_at = 0
    gains = logs[len(RANGES) : MEANS]
    for group in GROUPS:
        width = len(group.ranges)
        mean = logs[mean_at : mean_at + width]
        mean_at += width
        named = {"": _named(group.kind, np.exp(mean))}
        members = layout.members.get(group.name, ())
        for member in (*members, *_list_relatives(group, members)):
            own = mean + _add_deviations(logs, layout, group, member)
            if group.name == "generation":
                own = own + gains * era_sign(layout.years[member])
            named[member] = _named(group.kind, np.exp(own))
        found.append(named if group.name else named[""])
    generations, shared, stacks, hosts = found
    era = {name: float(f"{gain:.6g}") for name, gain in zip(ERA_SPREAD_LOG, gains, strict=True)}
    return FittedCoefficients(generations=generations, era=era, shared=shared, stacks=stacks, hosts=hosts)


def _list_relatives(group: CoefficientGroup, members: Sequence[str]) -> list[str]:
    """Return the stacks and hosts without cases that lie around others, whose coefficients they take."""
    trained = [one for one in members if not one.endswith(INFER)]
    found = {*group.parents, *(append_mode(one, "infer") for one in trained)} if group.tied_log else set()
    return sorted(found - {*members})


def _add_deviations(logs: Any, layout: VectorLayout, group: CoefficientGroup, member: str) -> Any:
    """Return a member's offsets from the mean, array of [coefficients]; its parents' if it has no cases."""
    import numpy as np

    total = np.zeros(len(group.ranges))
    for i, name in enumerate(group.ranges):
        infer = find_infer_column(group, member, name)
        total[i] += logs[infer] if infer >= 0 else 0.0
        one = member
        while one:
            column = layout.find_column(group, one, i)
            total[i] += logs[column] if column >= 0 else 0.0
            one = group.find_parent(one, name)
    return total


def _named(kind: Any, values: Any) -> Any:
    return kind(**{name: float(f"{value:.6g}") for name, value in zip(field_names(kind), values, strict=True)})

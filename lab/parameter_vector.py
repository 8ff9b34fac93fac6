"""Parameter vector of the fit: columns and bounds of the coefficients, and conversion to named coefficients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from gpuplan.predict.coefficients import FittedCoefficients, era_sign, field_names

from .priors import ERA_SPREAD_LOG, GROUPS, NEVER_LINEAR, NEVER_RISING, CoefficientGroup

RANGES = tuple(bounds for group in GROUPS for bounds in group.ranges.values())


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

    The means first, then what the era adds to those of the generations, then what each member adds.
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
        column = len(RANGES) + len(ERA_SPREAD_LOG)
        for group in GROUPS:
            if group.name == name:
                break
            column += len(self.members.get(group.name, ())) * len(group.ranges)
        return column

    @property
    def size(self) -> int:
        return (
            len(RANGES)
            + len(ERA_SPREAD_LOG)
            + sum(len(self.members.get(g.name, ())) * len(g.ranges) for g in GROUPS)
        )

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

    def parent_columns(self, sample: CoefficientKeys) -> list[int]:
        """Return the column of the deviation of the member's parent for each coefficient; -1 if there is none."""
        return [
            column
            for group in GROUPS
            for column in self.parents_of(group, getattr(sample, group.name) if group.name else "")
        ]

    def parents_of(self, group: CoefficientGroup, member: str) -> list[int]:
        """Return the column of each coefficient of a member's parent; -1 where there is none among the cases."""
        parents = group.parents.get(member, {})
        return [
            self.columns_of(group, parents[name])[i]
            if parents.get(name) in self.members.get(group.name, ())
            else -1
            for i, name in enumerate(group.ranges)
        ]


def compute_bounds(layout: VectorLayout) -> tuple[Any, Any, Any, Any]:
    """Return lowest, highest, start and prior spread of each column, in logs."""
    import numpy as np

    logs = np.log(np.array(RANGES))
    spreads = [
        group.spreads_log(member) for group in GROUPS if group.name for member in layout.members[group.name]
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
        np.concatenate([*(group.priors_log for group in GROUPS), list(ERA_SPREAD_LOG.values()), *spreads]),
    )


def compute_robust_scales(layout: VectorLayout) -> Any:
    """Return the scale of the robust loss of each column in prior spreads [-].

    One odd generation must not move the mean that stands for generations never measured; everything else is
    pulled with the square.
    """
    import numpy as np

    means = np.full(len(RANGES) + len(ERA_SPREAD_LOG), NEVER_LINEAR)
    members = [np.tile(group.robust_spreads, len(layout.members[group.name])) for group in GROUPS if group.name]
    return np.concatenate([means, *members])


def unpack_coefficients(logs: Any, layout: VectorLayout) -> FittedCoefficients:
    """Return named coefficients: the mean of each group under the empty name, and every member."""
    import numpy as np

    found: list[Any] = []
    mean_at = 0
    gains = logs[len(RANGES) : len(RANGES) + len(ERA_SPREAD_LOG)]
    for group in GROUPS:
        width = len(group.ranges)
        mean = logs[mean_at : mean_at + width]
        mean_at += width
        named = {"": _named(group.kind, np.exp(mean))}
        for member in layout.members.get(group.name, ()):
            parents = np.array(layout.parents_of(group, member))
            own = mean + logs[list(layout.columns_of(group, member))] + np.where(parents >= 0, logs[parents], 0.0)
            if group.name == "generation":
                own = own + gains * era_sign(layout.years[member])
            named[member] = _named(group.kind, np.exp(own))
        found.append(named if group.name else named[""])
    generations, shared, stacks, hosts = found
    era = {name: float(f"{gain:.6g}") for name, gain in zip(ERA_SPREAD_LOG, gains, strict=True)}
    return FittedCoefficients(generations=generations, era=era, shared=shared, stacks=stacks, hosts=hosts)


def _named(kind: Any, values: Any) -> Any:
    return kind(**{name: float(f"{value:.6g}") for name, value in zip(field_names(kind), values, strict=True)})

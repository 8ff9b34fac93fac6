"""Division of an array's dimensions along the axes of a device mesh.

The terms are those of GSPMD (Xu et al., 2021, "GSPMD: General and Scalable Parallelization for ML Computation
Graphs", arXiv:2105.04663, section 3): a dimension is divided along axes, or each device holds the whole of it; a
value that still has to be summed over the devices of an axis is a partial sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Axis(NamedTuple):
    """An axis of the mesh along which a dimension is divided.

    Args:
        name: Name in the mesh.
        parts: Length of the dimension as traced over that on a device; 1 for the samples of a batch that was
            traced at the size of one replica [-].
    """

    name: str
    parts: int


Axes = tuple[Axis, ...]  # of one dimension
Spec = tuple[Axes, ...]  # of all dimensions of an array
UNDIVIDED: Axes = ()


@dataclass(frozen=True, slots=True)
class Divided:
    """Division of a result, and the axes over which it still has to be summed."""

    spec: Spec
    partial: frozenset[str] = frozenset()


def build_undivided(shape: Shape) -> Spec:
    """Return the spec of an array of which each device holds the whole."""
    return (UNDIVIDED,) * len(shape)


def find_names(spec: Iterable[Axes]) -> frozenset[str]:
    """Return the names of the axes along which dimensions are divided."""
    return frozenset(axis.name for axes in spec for axis in axes)


def compute_local_shape(shape: Shape, spec: Spec) -> Shape:
    """Return the shape of the largest part of an array that a device holds.

    Example:
        >>> compute_local_shape((8, 30), ((Axis("batch", 1),), (Axis("model", 4),)))
        (8, 8)
    """
    return tuple(
        -(-size // prod(axis.parts for axis in axes)) for size, axes in zip(shape, spec, strict=True)
    )


def merge_axes(axes: Axes, more: Axes, *, taken: frozenset[str]) -> Axes | None:
    """Return the axes of a dimension that two arrays share; None if they conflict.

    Args:
        axes, more: Axes of the dimension in each of them.
        taken: Names of the axes that divide a dimension already.
    """
    if not more or more == axes:
        return axes
    return None if axes or find_names([more]) & taken else more


def take_axes(spec: Spec, names: Iterable[str]) -> Spec:
    """Return a spec without some axes.

    Example:
        >>> take_axes(((Axis("batch", 1),), (Axis("model", 4),)), ["model"])
        ((Axis(name='batch', parts=1),), ())
    """
    taken = frozenset(names)
    return tuple(tuple(axis for axis in axes if axis.name not in taken) for axes in spec)


def divide_reshaped(before: Shape, spec: Spec, after: Shape) -> Spec:
    """Return the spec of a reshaped array; axes that no dimension can carry without communication are left out.

    A division is carried from the outermost dimension of a group to the outermost one that the group becomes:
    heads x size becomes (heads, size), and samples x length becomes one dimension.

    Args:
        before, after: Shapes [-].
        spec: Spec of the array before.

    Example:
        >>> divide_reshaped((2, 12), ((), (Axis("model", 4),)), (2, 4, 3))
        ((), (Axis(name='model', parts=4),), ())
        >>> divide_reshaped((2, 12), ((), (Axis("model", 4),)), (24,))
        ((),)
    """
    found = [UNDIVIDED] * len(after)
    for left, right in _group_dimensions(before, after):
        outer = next((dim for dim in left if before[dim] != 1), None)
        inner = next((dim for dim in right if after[dim] != 1), None)
        if outer is None or inner is None:
            continue
        parts = prod(axis.parts for axis in spec[outer])
        if after[inner] % parts == 0:
            found[inner] = spec[outer]
    return tuple(found)


def _group_dimensions(before: Shape, after: Shape) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Return the smallest groups of neighbouring dimensions of equal size, before and after."""
    groups: list[tuple[Sequence[int], Sequence[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first, second = (i, i + 1), (j, j + 1)
        left, right = before[i], after[j]
        while left != right:
            if left < right and first[1] < len(before):
                left *= before[first[1]]
                first = (first[0], first[1] + 1)
            elif right < left and second[1] < len(after):
                right *= after[second[1]]
                second = (second[0], second[1] + 1)
            else:
                return groups
        groups.append((range(*first), range(*second)))
        i, j = first[1], second[1]
    return groups

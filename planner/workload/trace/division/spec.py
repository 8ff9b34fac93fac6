"""Division of the dimensions of arrays along the axes of a device mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ....records import Frozen

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


class Divided(NamedTuple):
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
    return tuple(-(-size // prod(axis.parts for axis in axes)) for size, axes in zip(shape, spec, strict=True))


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
        end, to = i + 1, j + 1
        while (left := prod(before[i:end])) != (right := prod(after[j:to])):
            if left < right and end < len(before):
                end += 1
            elif right < left and to < len(after):
                to += 1
            else:
                return groups
        groups.append((range(i, end), range(j, to)))
        i, j = end, to
    return groups


class MeshAxes(Frozen):
    """Axes of a mesh, whose devices are numbered along the last axis first.

    Args:
        sizes: Length of each axis, in their order [-].
        replicas: Axes along which samples are divided.
    """

    sizes: Mapping[str, int]
    replicas: frozenset[str] = frozenset()

    def build_axes(self, names: str | Sequence[str] | None) -> Axes:
        """Return the axes of a dimension of an activation by their names; those of one device are left out."""
        listed = (names,) if isinstance(names, str) else tuple(names or ())
        return tuple(
            Axis(name, 1 if name in self.replicas else self.sizes[name]) for name in listed if name in self.sizes
        )

    def describe_ring(self, names: Sequence[str], *, message_bytes: int) -> dict[str, Any]:
        """Return the fields of a `Collective` over some axes, but for those that its place in the step states.

        Args:
            names: Axes.
            message_bytes: The larger of operand and result on one device [bytes].

        Example:
            >>> mesh = MeshAxes(sizes={"batch": 2, "model": 4}, replicas=frozenset(["batch"]))
            >>> mesh.describe_ring(["batch"], message_bytes=8)
            {'devices': 2, 'stride': 4, 'message_bytes': 8, 'replicas': True}
        """
        order = list(self.sizes)
        last = max(order.index(name) for name in names)
        return {
            "devices": prod(self.sizes[name] for name in names),
            "stride": prod(self.sizes[name] for name in order[last + 1 :]),
            "message_bytes": message_bytes,
            "replicas": self.replicas.issuperset(names),
        }


class Placement(Frozen):
    """Placement of variables and samples.

    Args:
        mesh: Axes of the mesh of more than one device.
        divided: Specs of the variables that devices hold in parts, by the variable's identity.
    """

    mesh: MeshAxes
    divided: Mapping[int, Spec]

    @property
    def devices(self) -> int:
        """Devices of the mesh [-]."""
        return prod(self.mesh.sizes.values())

    @property
    def replicas(self) -> int:
        """Parts into which the mesh divides a batch [-]."""
        return prod(self.mesh.sizes[name] for name in self.mesh.replicas)

    def get_spec(self, variable: Any) -> Spec:
        """Return the division of a variable of the model."""
        return self.divided.get(id(variable)) or build_undivided(tuple(variable.shape))

    def compute_local_shape(self, variable: Any) -> Shape:
        """Return the shape of the part of a variable that a device holds."""
        return compute_local_shape(tuple(variable.shape), self.get_spec(variable))

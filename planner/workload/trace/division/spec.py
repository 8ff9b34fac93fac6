"""Division of an array's dimensions along the axes of a device mesh, and a jaxpr with the local shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    return tuple(-(-size // prod(axis.parts for axis in axes)) for size, axes in zip(shape, spec, strict=True))


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


@dataclass(frozen=True, slots=True)
class LocalArray:
    """Shape and type of an array on one device, as `jax.core.ShapedArray` has them."""

    shape: Shape
    dtype: Any


@dataclass(frozen=True, slots=True, eq=False)
class LocalVariable:
    """A variable of a local jaxpr, equal to itself alone."""

    aval: Any


@dataclass(frozen=True, slots=True)
class Primitive:
    """Name of a primitive that the division adds."""

    name: str


@dataclass(frozen=True, slots=True)
class LocalEquation:
    """An equation between local variables, with the fields of `jax.core.JaxprEqn` that are read."""

    primitive: Any
    params: Mapping[str, Any]
    invars: Sequence[Any]
    outvars: Sequence[LocalVariable]
    source_info: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of the step on the devices of a mesh.

    Args:
        variable: Local variable, or a literal.
        shape: Shape as traced [-].
        spec: Division of its dimensions.
        partial: Axes over whose devices it still has to be summed.
        summed_bytes: Size of one element as it is summed, of the products behind it [bytes].
    """

    variable: Any
    shape: Shape
    spec: Spec
    partial: frozenset[str] = frozenset()
    summed_bytes: int = 0

    @property
    def is_literal(self) -> bool:
        """Whether it is a constant in the program."""
        return hasattr(self.variable, "val")

    @staticmethod
    def of_literal(literal: Any) -> Value:
        """Return the value of a literal, which every device has."""
        shape = tuple(literal.aval.shape)
        return Value(variable=literal, shape=shape, spec=build_undivided(shape))


@dataclass(slots=True)
class LocalJaxpr:
    """A jaxpr of local equations, while it is written.

    Args:
        invars, constvars, outvars, eqns: As in `jax.core.Jaxpr`.
        summed: Values of partial sums that were summed, by the identity of the partial sum's variable.
        rewritten: Variables of values that were exchanged or sliced, by variable, primitive and spec.
    """

    invars: Sequence[LocalVariable]
    constvars: Sequence[LocalVariable] = ()
    outvars: Sequence[Any] = ()
    eqns: list[Any] = field(default_factory=list)
    summed: dict[int, Value] = field(default_factory=dict)
    rewritten: dict[tuple[Any, str, Spec], LocalVariable] = field(default_factory=dict)

    @property
    def jaxpr(self) -> LocalJaxpr:
        """Itself: it has no constants to close over, unlike a `jax.core.ClosedJaxpr`."""
        return self

    def append_equation(
        self, equation: Any, params: Mapping[str, Any], operands: Sequence[Value], results: Sequence[Value]
    ) -> None:
        """Append an equation as traced, with its parameters, operands and results on one device."""
        invars, outvars = ([value.variable for value in values] for values in (operands, results))
        self.eqns.append(LocalEquation(equation.primitive, params, invars, outvars, equation.source_info))


def build_value(variable: Any, spec: Spec) -> Value:
    """Return a new value for a traced variable."""
    shape = tuple(getattr(variable.aval, "shape", ()))
    local = LocalArray(compute_local_shape(shape, spec), getattr(variable.aval, "dtype", None))
    return Value(variable=LocalVariable(local), shape=shape, spec=spec)


def build_constants(jaxpr: Any) -> list[Value]:
    """Return new values for the constants of a traced jaxpr, which every device has."""
    return [build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]


def rename(value: Value) -> Value:
    """Return a value under a new variable."""
    return replace(value, variable=LocalVariable(value.variable.aval))

"""A jaxpr at local shapes while it is written, and the operands of its next equation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ..rules.cost_rule import Equation
from ..rules.registry import COLLECTIVES
from .spec import MeshAxes, Shape, Spec, compute_local_shape, find_names

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = COLLECTIVES


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


@dataclass(slots=True)
class LocalJaxpr:
    """A jaxpr of local equations, while it is written.

    Args:
        invars, constvars, outvars, eqns: As in `jax.core.Jaxpr`.
        summed: Values of partial sums that were summed, by the variable of the partial sum.
        rewritten: Variables of values that were exchanged or sliced, by variable, primitive and spec.
    """

    invars: Sequence[LocalVariable]
    constvars: Sequence[LocalVariable] = ()
    outvars: Sequence[Any] = ()
    eqns: list[Any] = field(default_factory=list)
    summed: dict[LocalVariable, Value] = field(default_factory=dict)
    rewritten: dict[tuple[Any, str, Spec], LocalVariable] = field(default_factory=dict)

    @property
    def jaxpr(self) -> LocalJaxpr:
        """Itself: it has no constants to close over, unlike a `jax.core.ClosedJaxpr`."""
        return self


def build_value(variable: Any, spec: Spec) -> Value:
    """Return a new value for a traced variable."""
    shape = tuple(getattr(variable.aval, "shape", ()))
    local = LocalArray(compute_local_shape(shape, spec), getattr(variable.aval, "dtype", None))
    return Value(variable=LocalVariable(local), shape=shape, spec=spec)


def rename(value: Value) -> Value:
    """Return a value under a new variable."""
    return replace(value, variable=LocalVariable(value.variable.aval))


class Operands:
    """Operands of a traced equation; what a rule changes of them is written into the local jaxpr before it."""

    def __init__(self, equation: Equation, values: Sequence[Value], *, mesh: MeshAxes, body: LocalJaxpr) -> None:
        self.equation, self.mesh, self._body = equation, mesh, body
        self.values = [one if one.is_literal else body.summed.get(one.variable, one) for one in values]

    @property
    def result_shapes(self) -> list[Shape]:
        """Shapes of the results as traced [-]."""
        return [tuple(getattr(one.aval, "shape", ())) for one in self.equation.outvars]

    def spec(self, index: int) -> Spec:
        """Return the division of an operand."""
        return self.values[index].spec

    def sum_up(self, index: int, *, wanted: Spec | None = None) -> None:
        """Sum a partial operand over its axes: a reduce-scatter where one is wanted divided along them.

        Args:
            index: Position of the operand [-].
            wanted: Division of the result; None for that of the operand.
        """
        value, before = self.values[index], self.values[index].variable
        for name in sorted(value.partial):
            spec = value.spec
            if wanted is not None and name in find_names(wanted):
                added = (tuple(axis for axis in axes if axis.name == name) for axes in wanted)
                spec = tuple((*axes, *more) for axes, more in zip(spec, added, strict=True))
            kind = ALL_REDUCE if spec == value.spec else REDUCE_SCATTER
            done = replace(value, spec=spec, partial=value.partial - {name})
            value = self._exchange(kind, done, names=(name,), largest=value.spec, itemsize=value.summed_bytes)
            self.values[index] = self._body.summed[before] = value

    def gather(self, index: int, dims: Iterable[int]) -> None:
        """Gather an operand along the axes of some of its dimensions."""
        value, chosen = self.values[index], set(dims)
        names = find_names(value.spec[dim] for dim in chosen)
        if not names:
            return
        spec = tuple(tuple(axis for axis in axes if axis.name not in names) for axes in value.spec)
        whole = replace(value, spec=spec)
        self.values[index] = self._exchange(ALL_GATHER, whole, names=tuple(sorted(names)), largest=spec)

    def fit(self, index: int, spec: Spec) -> None:
        """Gather an operand along axes that divide none of the same dimensions in a spec, and slice it to that."""
        pairs = enumerate(zip(self.spec(index), spec, strict=True))
        self.gather(index, [dim for dim, (axes, wanted) in pairs if find_names([axes]) - find_names([wanted])])
        self.slice_to(index, spec)

    def slice_to(self, index: int, spec: Spec) -> None:
        """Let each device take its part of an operand that it holds the whole of; without communication."""
        value = self.values[index]
        if value.is_literal or value.spec == spec:
            return
        self.values[index] = replace(value, spec=spec)
        if compute_local_shape(value.shape, spec) != tuple(value.variable.aval.shape):
            self.values[index] = self._rewrite(self.values[index], Primitive("dynamic_slice"), {})

    def write(self, params: Mapping[str, Any], results: list[Value]) -> list[Value]:
        """Append the equation with its parameters and results on one device, and return the results."""
        invars, outvars = ([value.variable for value in values] for values in (self.values, results))
        source = self.equation.source_info
        self._body.eqns.append(LocalEquation(self.equation.primitive, params, invars, outvars, source))
        return results

    def _rewrite(self, value: Value, primitive: Primitive, params: Mapping[str, Any]) -> Value:
        """Append an equation from a value's variable to a new one of its present spec."""
        old, key = value.variable, (value.variable, primitive.name, value.spec)
        if key not in self._body.rewritten:
            new = LocalVariable(LocalArray(compute_local_shape(value.shape, value.spec), old.aval.dtype))
            source = self.equation.source_info
            self._body.eqns.append(LocalEquation(primitive, params, (old,), (new,), source))
            self._body.rewritten[key] = new
        return replace(value, variable=self._body.rewritten[key])

    def _exchange(
        self, kind: str, value: Value, *, names: tuple[str, ...], largest: Spec, itemsize: int = 0
    ) -> Value:
        """Append a collective over axes of the mesh."""
        size = itemsize or value.variable.aval.dtype.itemsize
        message = prod(compute_local_shape(value.shape, largest)) * size
        return self._rewrite(value, Primitive(kind), self.mesh.describe_ring(names, message_bytes=message))

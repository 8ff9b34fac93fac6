"""A jaxpr with the local shapes of one device, readable like those of JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .spec import Shape, Spec, build_undivided, compute_local_shape


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

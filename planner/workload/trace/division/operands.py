"""Operands of one equation while a rule divides it: gathered, summed or sliced as the rule asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ..rules.cost_rule import Equation
from ..rules.registry import COLLECTIVES
from .spec import (
    LocalArray,
    LocalEquation,
    LocalJaxpr,
    LocalVariable,
    MeshAxes,
    Primitive,
    Spec,
    Value,
    compute_local_shape,
    find_names,
    take_axes,
)

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = COLLECTIVES


class Operands:
    """Operands of an equation; what a rule changes of them is written before the equation.

    Args:
        equation: The equation as traced.
        values: Its operands.
        mesh: Axes of the mesh.
        body: The local jaxpr so far, to which collectives and slices are appended.
    """

    def __init__(self, equation: Equation, values: Sequence[Value], *, mesh: MeshAxes, body: LocalJaxpr) -> None:
        self.equation, self.mesh, self._body = equation, mesh, body
        self.values = [body.summed.get(id(value.variable), value) for value in values]

    def spec(self, index: int) -> Spec:
        """Return the division of an operand."""
        return self.values[index].spec

    def sum_up(self, index: int, *, wanted: Spec | None = None) -> None:
        """Sum a partial operand over its axes: a reduce-scatter where one is wanted divided along them.

        Args:
            index: Position of the operand [-].
            wanted: Division of the result; None for that of the operand.
        """
        value = before = self.values[index]
        if not value.partial:
            return
        asked = find_names(() if wanted is None else wanted) & value.partial
        for name in sorted(value.partial):
            along = () if wanted is None or name not in asked else wanted
            value = self._sum_along(value, name, along)
        self.values[index] = self._body.summed[id(before.variable)] = value

    def _sum_along(self, value: Value, name: str, wanted: Spec) -> Value:
        spec = value.spec
        if wanted:
            added = [tuple(axis for axis in axes if axis.name == name) for axes in wanted]
            spec = tuple((*axes, *more) for axes, more in zip(spec, added, strict=True))
        done = replace(value, spec=spec, partial=value.partial - {name})
        kind, largest = (REDUCE_SCATTER if wanted else ALL_REDUCE), value.spec
        return self._exchange(kind, done, names=(name,), largest=largest, itemsize=value.summed_bytes)

    def gather(self, index: int, dims: Iterable[int]) -> None:
        """Gather an operand along the axes of some of its dimensions."""
        value, chosen = self.values[index], set(dims)
        names = find_names(value.spec[dim] for dim in chosen)
        if not names:
            return
        spec = take_axes(value.spec, names)
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
            self.values[index] = self._write(self.values[index], Primitive("dynamic_slice"), {})

    def _write(self, value: Value, primitive: Primitive, params: Mapping[str, Any]) -> Value:
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
        return self._write(value, Primitive(kind), self.mesh.describe_ring(names, message_bytes=message))

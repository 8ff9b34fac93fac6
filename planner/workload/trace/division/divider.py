"""Division of the equations of a traced step, one after the other, with called functions, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..control import find_inner_jaxprs, select_most_expensive_branch
from ..rules.cost_rule import Equation
from ..rules.registry import ELEMENTWISE_RULES as ELEMENTWISE
from ..rules.registry import find_rule
from .operands import Operands
from .rules import LINEAR, divide_equation
from .spec import Divided, LocalJaxpr, MeshAxes, Spec, Value, build_constants, build_value, rename

MOST_PASSES = 4  # over the body of a loop, until what it carries is divided alike before and after [-]


class BodyDivider(Protocol):
    """Interface of `divider.Divider` for bodies of functions, branches and loops."""

    def divide_body(
        self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Value]
    ) -> tuple[LocalJaxpr, list[Value]]:
        """Return a jaxpr at local shapes, and its results."""

    def conform(self, value: Value, spec: Spec | None, equation: Equation, body: LocalJaxpr) -> Value:
        """Return a value summed and divided as it is wanted."""


def divide_call(divider: BodyDivider, operands: Operands, jaxpr: Any, body: LocalJaxpr) -> list[Value]:
    """Divide the body of a called function."""
    inner, results = divider.divide_body(jaxpr, build_constants(jaxpr), operands.values)
    outside = [rename(value) for value in results]
    body.append_equation(operands.equation, {"jaxpr": inner}, operands.values, outside)
    return outside


def divide_branches(divider: BodyDivider, operands: Operands, body: LocalJaxpr) -> list[Value]:
    """Divide all branches, whose results are divided like those of the most expensive one."""
    equation = operands.equation
    expensive = select_most_expensive_branch(equation)
    jaxprs = sorted((one.jaxpr for one in equation.params["branches"]), key=lambda one: one is not expensive)
    branches: list[LocalJaxpr] = []
    specs: list[Spec] = []
    for jaxpr in jaxprs:
        branch, results = divider.divide_body(jaxpr, build_constants(jaxpr), operands.values[1:])
        specs = specs or [value.spec for value in results]
        ends = [divider.conform(value, spec, equation, branch) for value, spec in zip(results, specs, strict=True)]
        branch.outvars = [value.variable for value in ends]
        branches.append(branch)
    outside = [build_value(variable, spec) for variable, spec in zip(equation.outvars, specs, strict=True)]
    body.append_equation(equation, {"branches": tuple(branches)}, operands.values, outside)
    return outside


def divide_scan(divider: BodyDivider, operands: Operands, body: LocalJaxpr) -> list[Value]:
    """Divide a loop, whose carried values are divided alike before and after each iteration."""
    equation, params = operands.equation, operands.equation.params
    jaxpr, consts, carries = params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]
    for index in range(consts + carries, len(operands.values)):
        operands.gather(index, [0])
    variables = jaxpr.invars[consts:]
    slices = [value.spec[1:] for value in operands.values[consts + carries :]]
    carried = [value.spec for value in operands.values[consts : consts + carries]]
    for _ in range(MOST_PASSES):
        arguments = [
            build_value(variable, spec) for variable, spec in zip(variables, [*carried, *slices], strict=True)
        ]
        known = [*operands.values[:consts], *arguments]
        inner, results = divider.divide_body(jaxpr, build_constants(jaxpr), known)
        after = [value.spec for value in results[:carries]]
        if after == carried:
            break
        carried = after
    for index, spec in enumerate(carried):
        operands.fit(consts + index, spec)
    specs = [*carried, *(value.spec for value in results[carries:])]
    ends = [divider.conform(value, spec, equation, inner) for value, spec in zip(results, specs, strict=True)]
    inner.outvars = [value.variable for value in ends]
    stacked = [*carried, *(((), *spec) for spec in specs[carries:])]
    outside = [build_value(variable, spec) for variable, spec in zip(equation.outvars, stacked, strict=True)]
    body.append_equation(equation, {**params, "jaxpr": inner}, operands.values, outside)
    return outside


SUMMED = ("reduce_sum", "dot_general", "conv_general_dilated", "gather", "scatter-add", "scatter_add")


class Divider:
    """Recursive writer of local equations."""

    def __init__(self, mesh: MeshAxes) -> None:
        self._mesh = mesh

    def divide_body(
        self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Value]
    ) -> tuple[LocalJaxpr, list[Value]]:
        """Return a jaxpr at local shapes, and its results.

        Args:
            jaxpr: As traced.
            constants, arguments: Values of its variables outside.
        """
        inner_constants, inner = ([rename(value) for value in values] for values in (constants, arguments))
        scope = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*inner_constants, *inner], strict=True))
        local = LocalJaxpr(
            invars=[value.variable for value in inner], constvars=[value.variable for value in inner_constants]
        )

        def read(variable: Any) -> Value:
            return Value.of_literal(variable) if hasattr(variable, "val") else scope[variable]

        for equation in jaxpr.eqns:
            results = self._divide(equation, [read(one) for one in equation.invars], local)
            scope.update(zip(equation.outvars, results, strict=True))
        results = [read(one) for one in jaxpr.outvars]
        local.outvars = [value.variable for value in results]
        return local, results

    def conform(self, value: Value, spec: Spec | None, equation: Equation, body: LocalJaxpr) -> Value:
        """Return a value summed and divided as it is wanted.

        Args:
            value: The value.
            spec: Wanted division; None for the present one.
            equation: Where it comes from.
            body: The local jaxpr, to which what is needed is appended.
        """
        if value.is_literal:
            return value
        operands = Operands(equation, [value], mesh=self._mesh, body=body)
        wanted = value.spec if spec is None else spec
        operands.sum_up(0, wanted=wanted)
        operands.fit(0, wanted)
        return operands.values[0]

    def _divide(self, equation: Equation, values: list[Value], body: LocalJaxpr) -> list[Value]:
        name = equation.primitive.name
        operands = Operands(equation, values, mesh=self._mesh, body=body)
        called = [] if find_rule(name).known else find_inner_jaxprs(equation)
        if name in ("scan", "cond") or (len(called) == 1 and len(called[0].invars) == len(values)):
            for index in range(len(values)):
                operands.sum_up(index)
            if name == "scan":
                return divide_scan(self, operands, body)
            if name == "cond":
                return divide_branches(self, operands, body)
            return divide_call(self, operands, called[0], body)
        self._sum_operands(operands)
        divided = divide_equation(operands)
        results = self._write(equation, operands, divided, body)
        if name in LINEAR or name in SUMMED:
            return results
        return [self.conform(one, None, equation, body) for one in results]

    def _sum_operands(self, operands: Operands) -> None:
        """Sum partial operands, unless the equation is a sum of operands that are all partial alike.

        A conversion to a larger type waits for the sum, which is sent in the smaller one. Gradients may be summed
        after it: where each device keeps a part of them, it needs to receive no more.
        """
        name = operands.equation.primitive.name
        kinds = {value.partial for value in operands.values if not value.is_literal}
        if name in LINEAR and len(kinds) <= 1:
            first = operands.values[0]
            if _is_widening(operands.equation) and first.partial - self._mesh.replicas:
                operands.sum_up(0)
        elif name in ELEMENTWISE:
            self._sum_beside_divided(operands)
        else:
            for index in range(len(operands.values)):
                operands.sum_up(index)

    def _sum_beside_divided(self, operands: Operands) -> None:
        """Sum partial operands, scattered where another one of the same shape is divided along their axes."""
        values = operands.values
        for index, value in enumerate(values):
            other = next(
                (
                    one.spec
                    for one in values
                    if one is not value and one.shape == value.shape and not one.partial and any(one.spec)
                ),
                None,
            )
            operands.sum_up(index, wanted=other)

    def _write(
        self, equation: Equation, operands: Operands, divided: Sequence[Divided], body: LocalJaxpr
    ) -> list[Value]:
        results = []
        for variable, found in zip(equation.outvars, divided, strict=True):
            value = build_value(variable, found.spec)
            known = [one.summed_bytes for one in operands.values if one.summed_bytes]
            itemsize = getattr(getattr(variable.aval, "dtype", None), "itemsize", 0)
            results.append(
                replace(value, partial=found.partial, summed_bytes=min([itemsize, *known]))
                if found.partial
                else value
            )
        body.append_equation(equation, equation.params, operands.values, results)
        return results


def _is_widening(equation: Equation) -> bool:
    """Return whether an equation converts to a type of more bytes."""
    if equation.primitive.name != "convert_element_type":
        return False
    before, after = (variable.aval.dtype.itemsize for variable in (equation.invars[0], equation.outvars[0]))
    return bool(after > before)


def divide_step(
    closed_jaxpr: Any, *, inputs: Sequence[Spec], outputs: Sequence[Spec | None], mesh: MeshAxes
) -> LocalJaxpr:
    """Return a traced function as one device of a mesh runs it.

    Args:
        closed_jaxpr: Result of `jax.make_jaxpr`.
        inputs: Division of each argument.
        outputs: Division of each result; None for any.
        mesh: Axes along which something is divided.
    """
    divider = Divider(mesh)
    jaxpr = closed_jaxpr.jaxpr
    arguments = [build_value(one, spec) for one, spec in zip(jaxpr.invars, inputs, strict=True)]
    body, results = divider.divide_body(jaxpr, build_constants(jaxpr), arguments)
    body.outvars = [
        divider.conform(result, spec, jaxpr.eqns[-1], body).variable
        for result, spec in zip(results, outputs, strict=True)
    ]
    return body

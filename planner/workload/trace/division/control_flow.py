"""Division of called functions, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..jax.control import select_most_expensive_branch
from ..rules.cost_rule import Equation
from .local_jaxpr import LocalJaxpr, Value, build_constants, build_value, rename
from .operands import Operands
from .spec import Spec

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
        ends = [
            divider.conform(value, spec, equation, branch) for value, spec in zip(results, specs, strict=True)
        ]
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

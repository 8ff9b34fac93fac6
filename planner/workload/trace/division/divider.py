"""Division of the equations of a traced step, one after the other, with called functions, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...keras_layers import group_variables
from ...ops import Mode
from ..control import find_inner_jaxprs, select_most_expensive_branch
from ..rules.cost_rule import Equation
from ..rules.registry import ELEMENTWISE_RULES, find_rule
from .operands import LocalJaxpr, Operands, Value, build_value, rename
from .rules import LINEAR, divide_equation
from .spec import Divided, MeshAxes, Placement, Spec, build_undivided

MOST_PASSES = 4  # over the body of a loop, until what it carries is divided alike before and after [-]
SUMMED = ("reduce_sum", "dot_general", "conv_general_dilated", "gather", "scatter-add", "scatter_add")


class _Divider:
    """Recursive writer of local equations."""

    def __init__(self, mesh: MeshAxes) -> None:
        self._mesh = mesh

    def divide_body(self, jaxpr: Any, arguments: Sequence[Value]) -> tuple[LocalJaxpr, list[Value]]:
        """Return a jaxpr at local shapes, and its results; every device has the whole of its constants."""
        inner = [rename(value) for value in arguments]
        constants = [build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
        scope: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inner], strict=True))
        local = LocalJaxpr([value.variable for value in inner], [value.variable for value in constants])

        def read(variable: Any) -> Value:
            if not hasattr(variable, "val"):
                return scope[variable]
            shape = tuple(variable.aval.shape)
            return Value(variable=variable, shape=shape, spec=build_undivided(shape))

        for equation in jaxpr.eqns:
            results = self._divide(equation, [read(one) for one in equation.invars], local)
            scope.update(zip(equation.outvars, results, strict=True))
        results = [read(one) for one in jaxpr.outvars]
        local.outvars = [value.variable for value in results]
        return local, results

    def conform(self, value: Value, spec: Spec | None, equation: Equation, body: LocalJaxpr) -> Value:
        """Return a value summed and divided as it is wanted, None for the present division."""
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
                return self._divide_scan(operands)
            return self._divide_branches(operands) if name == "cond" else self._divide_call(operands, called[0])
        self._sum_operands(operands)
        results = _write(operands, divide_equation(operands))
        if name in LINEAR or name in SUMMED:
            return results
        return [self.conform(one, None, equation, body) for one in results]

    def _divide_call(self, operands: Operands, jaxpr: Any) -> list[Value]:
        inner, results = self.divide_body(jaxpr, operands.values)
        return operands.write({"jaxpr": inner}, [rename(value) for value in results])

    def _divide_branches(self, operands: Operands) -> list[Value]:
        """Divide all branches, whose results are divided like those of the most expensive one."""
        equation = operands.equation
        expensive = select_most_expensive_branch(equation)
        jaxprs = sorted((one.jaxpr for one in equation.params["branches"]), key=lambda one: one is not expensive)
        branches: list[LocalJaxpr] = []
        specs: list[Spec] = []
        for jaxpr in jaxprs:
            branch, results = self.divide_body(jaxpr, operands.values[1:])
            specs = specs or [value.spec for value in results]
            self.conform_results(branch, results, specs, equation)
            branches.append(branch)
        outside = [build_value(variable, spec) for variable, spec in zip(equation.outvars, specs, strict=True)]
        return operands.write({"branches": tuple(branches)}, outside)

    def _divide_scan(self, operands: Operands) -> list[Value]:
        """Divide a loop, whose carried values are divided alike before and after each iteration."""
        equation, params = operands.equation, operands.equation.params
        jaxpr, consts, carries = params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]
        for index in range(consts + carries, len(operands.values)):
            operands.gather(index, [0])
        slices = [value.spec[1:] for value in operands.values[consts + carries :]]
        carried = [value.spec for value in operands.values[consts : consts + carries]]
        for _ in range(MOST_PASSES):
            pairs = zip(jaxpr.invars[consts:], [*carried, *slices], strict=True)
            known = [*operands.values[:consts], *(build_value(variable, spec) for variable, spec in pairs)]
            inner, results = self.divide_body(jaxpr, known)
            after = [value.spec for value in results[:carries]]
            if after == carried:
                break
            carried = after
        for index, spec in enumerate(carried):
            operands.fit(consts + index, spec)
        specs = [*carried, *(value.spec for value in results[carries:])]
        self.conform_results(inner, results, specs, equation)
        stacked = [*carried, *(((), *spec) for spec in specs[carries:])]
        outside = [build_value(variable, spec) for variable, spec in zip(equation.outvars, stacked, strict=True)]
        return operands.write({**params, "jaxpr": inner}, outside)

    def conform_results(
        self, body: LocalJaxpr, results: Sequence[Value], specs: Sequence[Spec | None], equation: Equation
    ) -> None:
        ends = (self.conform(value, spec, equation, body) for value, spec in zip(results, specs, strict=True))
        body.outvars = [value.variable for value in ends]

    def _sum_operands(self, operands: Operands) -> None:
        """Sum partial operands, unless the equation is a sum of operands that are all partial alike.

        A conversion to a larger type waits for the sum, which is sent in the smaller one. Gradients may be summed
        after it: where each device keeps a part of them, it needs to receive no more.
        """
        name, values = operands.equation.primitive.name, operands.values
        kinds = {value.partial for value in values if not value.is_literal}
        if name in LINEAR and len(kinds) <= 1:
            converts, equation = name == "convert_element_type", operands.equation
            widens = converts and _get_itemsize(equation.outvars[0]) > _get_itemsize(equation.invars[0])
            if widens and values[0].partial - self._mesh.replicas:
                operands.sum_up(0)
            return
        for index, value in enumerate(values):
            alike = (
                one.spec
                for one in (values if name in ELEMENTWISE_RULES else ())
                if one is not value and one.shape == value.shape and not one.partial and any(one.spec)
            )  # along whose axes the sum is scattered
            operands.sum_up(index, wanted=next(alike, None))


def _write(operands: Operands, divided: Sequence[Divided]) -> list[Value]:
    """Append an equation with its results."""
    sizes = [one.summed_bytes for one in operands.values if one.summed_bytes]
    results = []
    for variable, found in zip(operands.equation.outvars, divided, strict=True):
        summed_bytes = min([_get_itemsize(variable), *sizes]) if found.partial else 0
        value = build_value(variable, found.spec)
        results.append(replace(value, partial=found.partial, summed_bytes=summed_bytes))
    return operands.write(operands.equation.params, results)


def _get_itemsize(variable: Any) -> int:
    return getattr(getattr(variable.aval, "dtype", None), "itemsize", 0)


def divide_step(
    closed_jaxpr: Any, *, inputs: Sequence[Spec], outputs: Sequence[Spec | None], mesh: MeshAxes
) -> LocalJaxpr:
    """Return a traced function as one device of a mesh runs it.

    Args:
        inputs: Division of each argument.
        outputs: Division of each result; None for any.
        mesh: Axes along which something is divided.
    """
    divider, jaxpr = _Divider(mesh), closed_jaxpr.jaxpr
    arguments = [build_value(one, spec) for one, spec in zip(jaxpr.invars, inputs, strict=True)]
    body, results = divider.divide_body(jaxpr, arguments)
    divider.conform_results(body, results, outputs, jaxpr.eqns[-1])
    return body


def divide_as_placed(
    closed_jaxpr: Any, model: Any, placement: Placement | None, *, mode: Mode
) -> LocalJaxpr | None:
    """Return a traced step as one device of a mesh runs it; None where every device holds all variables.

    The batch is that of one replica: of its samples, the device works on all.
    """
    if placement is None or not placement.divided:
        return None
    held = group_variables(model, train=mode == "train")
    variables = [placement.get_spec(variable) for group in held for variable in group]
    jaxpr = closed_jaxpr.jaxpr
    shapes = (one.aval.shape for one in jaxpr.invars[len(variables) :])
    mesh = placement.mesh
    samples = mesh.build_axes([name for name in mesh.sizes if name in mesh.replicas])
    data = [(samples, *build_undivided(shape[1:])) if shape else () for shape in shapes]
    new = variables if mode == "train" else []
    logs = (None for _ in range(len(jaxpr.outvars) - len(new)))
    return divide_step(closed_jaxpr, inputs=[*variables, *data], outputs=[*logs, *new], mesh=mesh)

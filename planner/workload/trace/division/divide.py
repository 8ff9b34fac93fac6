"""A traced step as one device of a mesh runs it: every array at its local shape, with the collectives in between.

Division is propagated forward from the variables and the batch, through the primitives in their order, as GSPMD
does (Xu et al., 2021, arXiv:2105.04663, section 3.5), which also propagates it backward; new values of variables
are divided like the old ones, as in Keras's `fit()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..jax.control import find_inner_jaxprs, select_most_expensive_branch
from ..rules.cost_rule import Equation
from ..rules.elementwise import RULES as ELEMENTWISE
from ..rules.registry import find_rule
from .local_jaxpr import LocalArray, LocalClosedJaxpr, LocalEquation, LocalJaxpr, LocalVariable, Value
from .mesh_axes import MeshAxes
from .operands import Operands
from .rules import LINEAR, Divided, divide_equation
from .spec import Spec, build_undivided, compute_local_shape

__all__ = ["divide_step"]

SUMMED = ("reduce_sum", "dot_general", "conv_general_dilated", "gather", "scatter-add", "scatter_add")
MOST_PASSES = 4  # over the body of a loop, until what it carries is divided alike before and after [-]


def divide_step(
    closed_jaxpr: Any,
    *,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec | None],
    mesh: MeshAxes,
) -> LocalClosedJaxpr:
    """Return a traced function as one device of a mesh runs it.

    Args:
        closed_jaxpr: Result of `jax.make_jaxpr`.
        inputs: Division of each argument.
        outputs: Division of each result; None for any.
        mesh: Axes along which something is divided.
    """
    divider = _Divider(mesh)
    jaxpr = closed_jaxpr.jaxpr
    constants = [_build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
    arguments = [_build_value(one, spec) for one, spec in zip(jaxpr.invars, inputs, strict=True)]
    body, results = divider.divide_body(jaxpr, constants, arguments)
    body.outvars = [
        divider.conform(result, spec, jaxpr, body).variable
        for result, spec in zip(results, outputs, strict=True)
    ]
    return LocalClosedJaxpr(body)


def _build_value(variable: Any, spec: Spec) -> Value:
    """Return a new value for a traced variable."""
    shape = tuple(getattr(variable.aval, "shape", ()))
    local = LocalArray(compute_local_shape(shape, spec), getattr(variable.aval, "dtype", None))
    return Value(variable=LocalVariable(local), shape=shape, spec=spec)


class _Divider:
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
        inner_constants, inner = ([_rename(value) for value in values] for values in (constants, arguments))
        scope = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*inner_constants, *inner], strict=True))
        local = LocalJaxpr(
            invars=[value.variable for value in inner],
            constvars=[value.variable for value in inner_constants],
        )

        def read(variable: Any) -> Value:
            return Value.of_literal(variable) if hasattr(variable, "val") else scope[variable]

        for equation in jaxpr.eqns:
            results = self._divide(equation, [read(one) for one in equation.invars], local)
            scope.update(zip(equation.outvars, results, strict=True))
        results = [read(one) for one in jaxpr.outvars]
        local.outvars = [value.variable for value in results]
        return local, results

    def conform(self, value: Value, spec: Spec | None, jaxpr: Any, body: LocalJaxpr) -> Value:
        """Return a value summed and divided as it is wanted.

        Args:
            value: The value.
            spec: Wanted division; None for the present one.
            jaxpr: Where it comes from.
            body: The local jaxpr, to which what is needed is appended.
        """
        if value.is_literal or not jaxpr.eqns:
            return value
        operands = Operands(jaxpr.eqns[-1], [value], mesh=self._mesh, body=body)
        wanted = value.spec if spec is None else spec
        operands.sum_up(0, wanted=wanted)
        operands.gather(0, [dim for dim, axes in enumerate(operands.spec(0)) if axes and axes != wanted[dim]])
        operands.slice_to(0, wanted)
        return operands.values[0]

    def _divide(self, equation: Equation, values: list[Value], body: LocalJaxpr) -> list[Value]:
        name = equation.primitive.name
        operands = Operands(equation, values, mesh=self._mesh, body=body)
        called = [] if find_rule(name).known else find_inner_jaxprs(equation)
        if name in ("scan", "cond") or (len(called) == 1 and len(called[0].invars) == len(values)):
            for index in range(len(values)):
                operands.sum_up(index)
            values = operands.values
            if name == "scan":
                return self._divide_scan(equation, values, body)
            if name == "cond":
                return self._divide_branches(equation, values, body)
            return self._divide_call(equation, called[0], values, body)
        self._sum_operands(operands)
        divided = divide_equation(operands)
        results = self._write(equation, operands, divided, body)
        if name in LINEAR or name in SUMMED:
            return results
        return [self._sum_result(one, equation, body) for one in results]

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

    def _sum_result(self, value: Value, equation: Equation, body: LocalJaxpr) -> Value:
        operands = Operands(equation, [value], mesh=self._mesh, body=body)
        operands.sum_up(0)
        return operands.values[0]

    def _write(
        self, equation: Equation, operands: Operands, divided: Sequence[Divided], body: LocalJaxpr
    ) -> list[Value]:
        results = []
        for variable, found in zip(equation.outvars, divided, strict=True):
            value = _build_value(variable, found.spec)
            known = [one.summed_bytes for one in operands.values if one.summed_bytes]
            itemsize = getattr(getattr(variable.aval, "dtype", None), "itemsize", 0)
            results.append(
                replace(value, partial=found.partial, summed_bytes=min([itemsize, *known]))
                if found.partial
                else value
            )
        body.eqns.append(
            LocalEquation(
                equation.primitive,
                equation.params,
                [value.variable for value in operands.values],
                [value.variable for value in results],
                equation.source_info,
            )
        )
        return results

    def _divide_call(
        self, equation: Equation, jaxpr: Any, values: Sequence[Value], body: LocalJaxpr
    ) -> list[Value]:
        """Divide the body of a called function."""
        constants = [_build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
        inner, results = self.divide_body(jaxpr, constants, values)
        outside = [_rename(value) for value in results]
        body.eqns.append(
            LocalEquation(
                equation.primitive,
                {"jaxpr": inner},
                [value.variable for value in values],
                [value.variable for value in outside],
                equation.source_info,
            )
        )
        return outside

    def _divide_branches(self, equation: Equation, values: Sequence[Value], body: LocalJaxpr) -> list[Value]:
        """Divide all branches, whose results are divided like those of the most expensive one."""
        expensive = select_most_expensive_branch(equation)
        jaxprs = sorted(
            (one.jaxpr for one in equation.params["branches"]), key=lambda one: one is not expensive
        )
        branches, specs = [], None
        for jaxpr in jaxprs:
            constants = [_build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
            branch, results = self.divide_body(jaxpr, constants, values[1:])
            specs = specs or [value.spec for value in results]
            ends = [
                self.conform(value, spec, jaxpr, branch) for value, spec in zip(results, specs, strict=True)
            ]
            branch.outvars = [value.variable for value in ends]
            branches.append(LocalClosedJaxpr(branch))
        outside = [
            _build_value(variable, spec) for variable, spec in zip(equation.outvars, specs or (), strict=True)
        ]
        body.eqns.append(
            LocalEquation(
                equation.primitive,
                {"branches": tuple(branches)},
                [value.variable for value in values],
                [value.variable for value in outside],
                equation.source_info,
            )
        )
        return outside

    def _divide_scan(self, equation: Equation, values: Sequence[Value], body: LocalJaxpr) -> list[Value]:
        """Divide a loop, whose carried values are divided alike before and after each iteration."""
        params = equation.params
        jaxpr, consts, carries = params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]
        operands = Operands(equation, list(values), mesh=self._mesh, body=body)
        for index in range(consts + carries, len(values)):
            operands.gather(index, [0])
        scanned = [
            _build_value(variable, value.spec[1:])
            for variable, value in zip(
                jaxpr.invars[consts + carries :], operands.values[consts + carries :], strict=True
            )
        ]
        carried = [value.spec for value in operands.values[consts : consts + carries]]
        for _ in range(MOST_PASSES):
            state = [
                _build_value(variable, spec)
                for variable, spec in zip(jaxpr.invars[consts : consts + carries], carried, strict=True)
            ]
            constants = [_build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
            inner, results = self.divide_body(jaxpr, constants, [*operands.values[:consts], *state, *scanned])
            after = [value.spec for value in results[:carries]]
            if after == carried:
                break
            carried = after
        for index, spec in enumerate(carried):
            before = operands.values[consts + index]
            operands.gather(
                consts + index,
                [dim for dim, axes in enumerate(before.spec) if axes and axes != spec[dim]],
            )
            operands.slice_to(consts + index, spec)
        wanted = [*carried, *(value.spec for value in results[carries:])]
        ends = [self.conform(value, spec, jaxpr, inner) for value, spec in zip(results, wanted, strict=True)]
        inner.outvars = [value.variable for value in ends]
        whole = [*wanted[:carries], *(((), *spec) for spec in wanted[carries:])]
        outside = [
            _build_value(variable, spec) for variable, spec in zip(equation.outvars, whole, strict=True)
        ]
        body.eqns.append(
            LocalEquation(
                equation.primitive,
                {**params, "jaxpr": LocalClosedJaxpr(inner)},
                [value.variable for value in operands.values],
                [value.variable for value in outside],
                equation.source_info,
            )
        )
        return outside


def _is_widening(equation: Equation) -> bool:
    """Return whether an equation converts to a type of more bytes."""
    if equation.primitive.name != "convert_element_type":
        return False
    before, after = (variable.aval.dtype.itemsize for variable in (equation.invars[0], equation.outvars[0]))
    return bool(after > before)


def _rename(value: Value) -> Value:
    """Return a value under a new variable; a literal as it is."""
    if value.is_literal:
        return Value(variable=LocalVariable(value.variable.aval), shape=value.shape, spec=value.spec)
    return replace(value, variable=LocalVariable(value.variable.aval))

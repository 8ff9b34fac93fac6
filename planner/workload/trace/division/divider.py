"""Division of a traced step: the result of each primitive, given that of its operands, and whole functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...keras_layers import group_variables
from ...ops import Mode
from ..graph.graph import find_inner_jaxprs, select_most_expensive_branch
from ..rules import OPERATIONS, Equation, Role, find_rule
from .spec import (
    UNDIVIDED,
    WHOLE,
    Axes,
    Divided,
    LocalJaxpr,
    Operands,
    Placement,
    Spec,
    Value,
    build_undivided,
    build_value,
    divide_reshaped,
    find_names,
    rename,
)

_TABLE = OPERATIONS["division"]
_FACTS = _TABLE["facts"]


def divide_dot(operands: Operands) -> list[Divided]:
    """Divide a product: along free and batch dimensions as its operands, along summed ones as a partial sum."""
    summed, batches = operands.equation.params["dimension_numbers"]
    for left, right in (*zip(*batches, strict=True), *zip(*summed, strict=True)):
        match_dimensions(operands, left, right)
    taken = [set(summed[side]) | set(batches[side]) for side in (0, 1)]
    free = [[dim for dim in range(len(operands.spec(side))) if dim not in taken[side]] for side in (0, 1)]
    part_free_dimensions(operands, free)
    left_spec, right_spec = operands.spec(0), operands.spec(1)
    spec = (*(left_spec[dim] for dim in (*batches[0], *free[0])), *(right_spec[dim] for dim in free[1]))
    return [(spec, find_names(left_spec[dim] for dim in summed[0]))]


def match_dimensions(operands: Operands, left: int, right: int) -> None:
    """Divide a dimension that two operands share alike: by slicing the whole one if it can be, else gathered."""
    dims = {0: left, 1: right}
    names = [find_names([operands.spec(side)[dim]]) for side, dim in dims.items()]
    if names[0] == names[1]:
        return
    for side, other in ((0, 1), (1, 0)):
        spec = list(operands.spec(other))
        if names[side] and not spec[dims[other]] and not names[side] & find_names(spec):
            spec[dims[other]] = operands.spec(side)[dims[side]]
            operands.slice_to(other, tuple(spec))
            return
    first = next(side for side in _order_by_parts(operands, dims) if names[side])
    for side in (first, 1 - first):  # of the other one, too, where it is still divided
        operands.gather(side, [dims[side]])


def _order_by_parts(operands: Operands, dims: Mapping[int, int]) -> list[int]:
    """Return operands, a variable before samples: of a variable, a device holds a part of what is traced."""
    return sorted(dims, key=lambda side: all(axis.parts == 1 for axis in operands.spec(side)[dims[side]]))


def part_free_dimensions(operands: Operands, free: Sequence[Sequence[int]]) -> None:
    """Gather an operand along an axis along which the other one is divided too: a variable before samples."""
    names = [find_names(operands.spec(side)[dim] for dim in free[side]) for side in (0, 1)]
    taken = [find_names(operands.spec(side)) for side in (0, 1)]
    for name in sorted((names[0] & taken[1]) | (names[1] & taken[0])):
        dims = {
            side: dim for side in (0, 1) for dim in free[side] if name in find_names([operands.spec(side)[dim]])
        }
        first = _order_by_parts(operands, dims)[0]
        operands.gather(first, [dims[first]])


def divide_convolution(operands: Operands) -> list[Divided]:
    """Divide a convolution along samples and output channels, and as a partial sum along input channels."""
    params = operands.equation.params
    numbers = params["dimension_numbers"]
    image, kernel, result = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    operands.gather(0, image[2:])
    operands.gather(1, kernel[2:])
    if params["feature_group_count"] > 1 or params["batch_group_count"] > 1:
        operands.gather(1, kernel[:2])
        operands.gather(0, image[1:2])
    match_dimensions(operands, image[1], kernel[1])
    part_free_dimensions(operands, [image[:1], kernel[:1]])
    found = [UNDIVIDED] * len(result)
    found[result[0]] = operands.spec(0)[image[0]]
    found[result[1]] = operands.spec(1)[kernel[0]]
    return [(tuple(found), find_names([operands.spec(0)[image[1]]]))]


def divide_gather(operands: Operands) -> list[Divided]:
    """Divide a look-up; in a table divided along its rows, each device finds some, and takes the rest as zero."""
    params, table = operands.equation.params, operands.values[0]
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = [dim for dim in range(len(table.shape)) if dim not in gone]
    operands.gather(0, [dim for dim in offsets if sizes[dim] != table.shape[dim]])
    for dim, indexed in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        match_dimensions(operands, dim, indexed)
    indices = operands.spec(1)[:-1]
    rows, inner = iter(indices), iter(offsets)
    found: list[Axes] = []
    for dim in range(len(operands.result_shapes[0])):
        if dim in numbers.offset_dims:
            at = next(inner)
            if find_names([operands.spec(0)[at]]) & find_names(indices):
                operands.gather(0, [at])
            found.append(operands.spec(0)[at])
        else:
            found.append(next(rows))
    partial = find_names(operands.spec(0)[dim] for dim in numbers.collapsed_slice_dims)
    return [(tuple(found), partial - find_names(found))]


def divide_scatter(operands: Operands) -> list[Divided]:
    """Divide the gradient of a look-up: partial along the axes that divide the rows that are added."""
    numbers = operands.equation.params["dimension_numbers"]
    table, updates = operands.values[0], operands.values[2]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = [dim for dim in range(len(table.shape)) if dim not in gone]
    found = list(operands.spec(0))
    for dim, window in zip(windows, numbers.update_window_dims, strict=True):
        if updates.shape[window] != table.shape[dim]:
            operands.gather(2, [window])
        elif not found[dim] and not find_names([updates.spec[window]]) & find_names(found):
            found[dim] = updates.spec[window]
    added = [dim for dim in range(len(updates.shape)) if dim not in numbers.update_window_dims]
    partial = find_names(operands.spec(2)[dim] for dim in added) - find_names(found)
    operands.slice_to(0, tuple(found))
    return [(tuple(found), partial)]


def _divide_alike(operands: Operands) -> list[Divided]:
    """Keep the division of dimensions of equal length in operands and result; gather those that are combined."""
    name, params = operands.equation.primitive.name, operands.equation.params
    busy: Sequence[int] = ()
    if (dims := params.get(_TABLE["combined"].get(name))) is not None:
        busy = (dims,) if isinstance(dims, int) else tuple(dims)
    elif name in _FACTS["last_combined"]:
        rank = len(operands.values[0].shape)
        busy = (rank - 2, rank - 1)
    specs = [_agree(operands, shape, whole=busy) for shape in operands.result_shapes]
    partial = WHOLE.union(*(value.partial for value in operands.values))
    return [(spec, partial) for spec in specs]


def _agree(operands: Operands, shape: tuple[int, ...], *, whole: Sequence[int]) -> Spec:
    """Return the division of a result of some shape, and make operands of as many dimensions fit."""
    found: list[Axes] = [UNDIVIDED] * len(shape)
    held = [sum(axis.parts > 1 for axes in value.spec for axis in axes) for value in operands.values]
    order = sorted(range(len(held)), key=lambda index: -held[index])
    same = [index for index in order if len(operands.values[index].shape) == len(shape)]
    for index in (index for index in order if index not in same):
        operands.gather(index, range(len(operands.spec(index))))
    for index in same:
        value = operands.values[index]
        for dim, axes in enumerate(value.spec):
            if not axes:
                continue
            conflicts = axes != found[dim] and (found[dim] or find_names([axes]) & find_names(found))
            if dim in whole or value.shape[dim] != shape[dim] or conflicts:
                operands.gather(index, [dim])
            else:
                found[dim] = axes
    for index in same:
        value = operands.values[index]
        wanted = tuple(axes if value.shape[dim] == shape[dim] else UNDIVIDED for dim, axes in enumerate(found))
        if find_names(wanted) & value.partial:
            operands.sum_up(index, wanted=wanted)
        operands.slice_to(index, wanted)
    return tuple(found)


def _divide_reshape(operands: Operands) -> list[Divided]:
    before = operands.values[0]
    spec = divide_reshaped(before.shape, before.spec, operands.result_shapes[0])
    lost = find_names(before.spec) - find_names(spec)
    if lost:
        operands.gather(0, [dim for dim, axes in enumerate(before.spec) if find_names([axes]) & lost])
    return [(spec, operands.values[0].partial)]


def _divide_transpose(operands: Operands) -> list[Divided]:
    moved = tuple(operands.spec(0)[dim] for dim in operands.equation.params["permutation"])
    return [(moved, operands.values[0].partial)]


def _divide_broadcast(operands: Operands) -> list[Divided]:
    value, shape = operands.values[0], operands.result_shapes[0]
    found = [UNDIVIDED] * len(shape)
    for dim, to in enumerate(operands.equation.params["broadcast_dimensions"]):
        if value.shape[dim] == shape[to]:
            found[to] = value.spec[dim]
    return [(tuple(found), WHOLE)]


def _divide_constraint(operands: Operands) -> list[Divided]:
    """Divide an array as the user's code says (`jax.lax.with_sharding_constraint`), as far as it says anything."""
    value, mesh = operands.values[0], operands.mesh
    stated = getattr(operands.equation.params.get("sharding"), "spec", None)
    if stated is None:
        return [(value.spec, value.partial)]
    entries = [*stated, *(None for _ in range(len(value.shape) - len(stated)))]
    wanted = tuple(  # `PartitionSpec.UNCONSTRAINED` leaves a division open
        mesh.build_axes(entry) if entry is None or isinstance(entry, str | tuple | list) else axes
        for entry, axes in zip(entries, value.spec, strict=True)
    )
    operands.fit(0, wanted)
    return [(wanted, WHOLE)]


def _divide_generated(operands: Operands) -> list[Divided]:
    """Let every device make the whole of what depends on no array: constants, counts, random numbers."""
    for index, value in enumerate(operands.values):
        operands.gather(index, range(len(value.spec)))
    return [(build_undivided(shape), WHOLE) for shape in operands.result_shapes]


def _divide_reduction(operands: Operands) -> list[Divided]:
    """Divide a reduction; along a divided dimension, it is partial."""
    params, value = operands.equation.params, operands.values[0]
    reduced = params.get("axes", params.get("dimensions", ()))
    partial = find_names(value.spec[dim] for dim in reduced)
    spec = tuple(axes for dim, axes in enumerate(value.spec) if dim not in reduced)
    known = value.partial if operands.equation.primitive.name == "reduce_sum" else WHOLE
    return [(spec, partial | known)] * len(operands.equation.outvars)


_KINDS: dict[str, Callable[[Operands], list[Divided]]] = {
    "convolution": divide_convolution,
    "product": divide_dot,
    "gather": divide_gather,
    "scatter": divide_scatter,
    "reshape": _divide_reshape,
    "transpose": _divide_transpose,
    "broadcast": _divide_broadcast,
    "constraint": _divide_constraint,
    "reduction": _divide_reduction,
    "generated": _divide_generated,
}
_RULES = {name: rule for kind, rule in _KINDS.items() for name in _TABLE[kind]}


MOST_PASSES = 4  # over the body of a loop, until what it carries is divided alike before and after [-]


class _Divider(NamedTuple):
    """Recursive writer of local equations."""

    mesh: Placement

    def divide_body(self, jaxpr: Any, arguments: Sequence[Value]) -> LocalJaxpr:
        """Return a jaxpr at local shapes; every device has the whole of its constants."""
        inner = [rename(value) for value in arguments]
        constants = [build_value(one, build_undivided(tuple(one.aval.shape))) for one in jaxpr.constvars]
        scope: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inner], strict=True))
        local = LocalJaxpr([value.variable for value in inner], [value.variable for value in constants])

        def read(variable: Any) -> Value:
            if not hasattr(variable, "val"):
                return scope[variable]
            return Value(variable=variable, shape=variable.aval.shape, spec=build_undivided(variable.aval.shape))

        for equation in jaxpr.eqns:
            operands = Operands(equation, list(map(read, equation.invars)), mesh=self.mesh, body=local)
            scope.update(zip(equation.outvars, self._divide(operands, local), strict=True))
        local.results = [read(one) for one in jaxpr.outvars]
        return local

    def conform(
        self, body: LocalJaxpr, results: Sequence[Value], specs: Sequence[Spec | None], equation: Equation
    ) -> list[Value]:
        """Return values summed and divided as they are wanted, None for the present division."""
        ends = []
        for value, spec in zip(results, specs, strict=True):
            operands = Operands(equation, [value], mesh=self.mesh, body=body)
            operands.fit(0, spec or value.spec)
            ends.append(operands.values[0])
        return ends

    def _divide(self, operands: Operands, body: LocalJaxpr) -> list[Value]:
        equation, values = operands.equation, operands.values
        name = equation.primitive.name
        called = [] if find_rule(name).known else find_inner_jaxprs(equation)
        if name in ("scan", "cond") or (len(called) == 1 and len(called[0].invars) == len(values)):
            for index in range(len(values)):
                operands.sum_up(index)
            if name == "scan":
                return self._divide_scan(operands)
            if name == "cond":
                return self._divide_branches(operands)
            inner = self.divide_body(called[0], values)
            return operands.write({"jaxpr": inner}, [rename(value) for value in inner.results])
        self._sum_operands(operands)
        divided = _RULES.get(name, _divide_alike)(operands)
        sizes = [one.summed_bytes for one in operands.values if one.summed_bytes]
        results = []
        for variable, (spec, partial) in zip(equation.outvars, divided, strict=True):
            summed_bytes = min([_get_itemsize(variable), *sizes]) if partial else 0
            results.append(replace(build_value(variable, spec), partial=partial, summed_bytes=summed_bytes))
        operands.write(equation.params, results)
        if name in _FACTS["linear"] or name in _FACTS["summed"]:
            return results
        return self.conform(body, results, [None] * len(results), equation)

    def _divide_branches(self, operands: Operands) -> list[Value]:
        """Divide all branches, whose results are divided like those of the most expensive one."""
        equation = operands.equation
        expensive = select_most_expensive_branch(equation)
        jaxprs = sorted((one.jaxpr for one in equation.params["branches"]), key=lambda one: one is not expensive)
        branches = [self.divide_body(jaxpr, operands.values[1:]) for jaxpr in jaxprs]
        specs = [value.spec for value in branches[0].results]
        for branch in branches:
            branch.results = self.conform(branch, branch.results, specs, equation)
        return operands.write({"branches": tuple(branches)}, list(map(build_value, equation.outvars, specs)))

    def _divide_scan(self, operands: Operands) -> list[Value]:
        """Divide a loop, whose carried values are divided alike before and after each iteration."""
        equation, params = operands.equation, operands.equation.params
        jaxpr, consts, carries = params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]
        for index in range(consts + carries, len(operands.values)):
            operands.gather(index, [0])
        slices = [value.spec[1:] for value in operands.values[consts + carries :]]
        carried = [value.spec for value in operands.values[consts : consts + carries]]
        for _ in range(MOST_PASSES):
            known = [*operands.values[:consts], *map(build_value, jaxpr.invars[consts:], [*carried, *slices])]
            inner = self.divide_body(jaxpr, known)
            after = [value.spec for value in inner.results[:carries]]
            if after == carried:
                break
            carried = after
        for index, spec in enumerate(carried):
            operands.fit(consts + index, spec)
        specs = [*carried, *(value.spec for value in inner.results[carries:])]
        inner.results = self.conform(inner, inner.results, specs, equation)
        stacked = [*carried, *(((), *spec) for spec in specs[carries:])]
        return operands.write({**params, "jaxpr": inner}, list(map(build_value, equation.outvars, stacked)))

    def _sum_operands(self, operands: Operands) -> None:
        """Sum partial operands, unless the equation is a sum of operands that are all partial alike.

        A conversion to a larger type waits for the sum, which is sent in the smaller one; gradients, after it.
        """
        equation, values = operands.equation, operands.values
        name = equation.primitive.name
        if name in _FACTS["linear"] and len({value.partial for value in values if not value.is_literal}) <= 1:
            widens = _get_itemsize(equation.outvars[0]) > _get_itemsize(equation.invars[0])
            if name == "convert_element_type" and widens and values[0].partial - self.mesh.replicas:
                operands.sum_up(0)
            return
        for index, value in enumerate(values):
            alike = (
                one.spec
                for one in (values if find_rule(name).role is Role.POINTWISE else ())
                if one is not value and one.shape == value.shape and not one.partial and any(one.spec)
            )  # along whose axes the sum is scattered
            operands.sum_up(index, wanted=next(alike, None))


def _get_itemsize(variable: Any) -> int:
    return getattr(getattr(variable.aval, "dtype", None), "itemsize", 0)


def divide_step(
    closed_jaxpr: Any, *, inputs: Sequence[Spec], outputs: Sequence[Spec | None], mesh: Placement
) -> LocalJaxpr:
    """Return a traced function as one device runs it, by the division of arguments and results, None for any."""
    divider, jaxpr = _Divider(mesh), closed_jaxpr.jaxpr
    body = divider.divide_body(jaxpr, list(map(build_value, jaxpr.invars, inputs)))
    body.results = divider.conform(body, body.results, outputs, jaxpr.eqns[-1])
    return body


def divide_as_placed(closed_jaxpr: Any, model: Any, placement: Placement, *, mode: Mode) -> LocalJaxpr:
    """Return a traced step, at the batch of one replica, as one device of a mesh runs it."""
    held = group_variables(model, train=mode == "train")
    variables = [placement.get_spec(variable) for group in held for variable in group]
    jaxpr = closed_jaxpr.jaxpr
    shapes = (one.aval.shape for one in jaxpr.invars[len(variables) :])
    samples = placement.build_axes([name for name in placement.sizes if name in placement.replicas])
    data = [(samples, *build_undivided(shape[1:])) if shape else () for shape in shapes]
    new = variables if mode == "train" else []
    logs = (None for _ in range(len(jaxpr.outvars) - len(new)))
    return divide_step(closed_jaxpr, inputs=[*variables, *data], outputs=[*logs, *new], mesh=placement)

"""Division of the result of each primitive, given that of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .operands import Operands
from .spec import UNDIVIDED, Axes, Divided, Shape, Spec, build_undivided, divide_reshaped, find_names


def divide_dot(operands: Operands) -> list[Divided]:
    """Divide a product: along free and batch dimensions as its operands, along summed ones as a partial sum."""
    summed, batches = operands.equation.params["dimension_numbers"]
    for left, right in zip(*batches, strict=True):
        match_dimensions(operands, left, right)
    for left, right in zip(*summed, strict=True):
        match_dimensions(operands, left, right)
    taken = [set(summed[side]) | set(batches[side]) for side in (0, 1)]
    free = [[dim for dim in range(len(operands.spec(side))) if dim not in taken[side]] for side in (0, 1)]
    part_free_dimensions(operands, free)
    left_spec, right_spec = operands.spec(0), operands.spec(1)
    spec = (
        *(left_spec[dim] for dim in batches[0]),
        *(left_spec[dim] for dim in free[0]),
        *(right_spec[dim] for dim in free[1]),
    )
    return [Divided(spec, find_names(left_spec[dim] for dim in summed[0]))]


def match_dimensions(operands: Operands, left: int, right: int) -> None:
    """Divide a dimension that two operands share alike: by slicing the whole one if it can be, else gathered."""
    dims = {0: left, 1: right}

    def list_names(side: int) -> frozenset[str]:
        return find_names([operands.spec(side)[dims[side]]])

    if list_names(0) == list_names(1):
        return
    for side, other in ((0, 1), (1, 0)):
        spec = list(operands.spec(other))
        if list_names(side) and not spec[dims[other]] and not list_names(side) & find_names(spec):
            spec[dims[other]] = operands.spec(side)[dims[side]]
            operands.slice_to(other, tuple(spec))
            return
    first = next(side for side in _order_by_parts(operands, dims) if list_names(side))
    operands.gather(first, [dims[first]])
    if list_names(0) != list_names(1):
        for side, dim in dims.items():
            operands.gather(side, [dim])


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
    return [Divided(tuple(found), find_names([operands.spec(0)[image[1]]]))]


def divide_gather(operands: Operands) -> list[Divided]:
    """Divide a look-up; in a table divided along its rows, each device finds some, and takes the rest as zero."""
    params, table = operands.equation.params, operands.values[0]
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = [dim for dim in range(len(table.shape)) if dim not in gone]
    cut = [dim for dim in offsets if sizes[dim] != table.shape[dim]]
    operands.gather(0, cut)
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
    return [Divided(tuple(found), partial - find_names(found))]


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
    return [Divided(tuple(found), partial)]


# Sums of partial sums, and other names and types of one: the sum over devices may wait until after them.
LINEAR = frozenset({
    "add", "add_any", "convert_element_type", "copy", "expand_dims", "neg", "reduce_sum", "reshape", "squeeze",
    "sub", "transpose", "name", "stop_gradient", "optimization_barrier",
})  # fmt: skip


def divide_equation(operands: Operands) -> list[Divided]:
    """Return the division of each result of an equation, after its operands were made to fit."""
    name = operands.equation.primitive.name
    return _RULES.get(name, _divide_alike)(operands)


# --- the same dimensions -------------------------------------------------------------------------------------


def _divide_alike(operands: Operands) -> list[Divided]:
    """Keep the division of dimensions that have the same length in an operand and in the result.

    Operands are divided like each other; one that a device holds whole is sliced.
    """
    busy = _find_busy(operands)
    specs = [_agree(operands, shape, whole=busy) for shape in operands.result_shapes]
    partial = frozenset[str]().union(*(value.partial for value in operands.values))
    return [Divided(spec, partial) for spec in specs]


def _agree(operands: Operands, shape: Shape, *, whole: Sequence[int]) -> Spec:
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


_BUSY = {
    "concatenate": "dimension", "cumsum": "axis", "cumprod": "axis", "cummax": "axis", "cummin": "axis",
    "cumlogsumexp": "axis", "sort": "dimension", "split": "axis", "rev": "dimensions", "argsort": "dimension",
}  # fmt: skip
_LAST_BUSY = (
    "top_k", "approx_top_k", "fft", "cholesky", "lu", "qr", "triangular_solve", "eigh", "eig", "svd",
)  # fmt: skip


def _find_busy(operands: Operands) -> Sequence[int]:
    """Return the dimensions along which a primitive combines elements."""
    name, params = operands.equation.primitive.name, operands.equation.params
    if name in _BUSY and _BUSY[name] in params:
        dims = params[_BUSY[name]]
        return (dims,) if isinstance(dims, int) else tuple(dims)
    if name in _LAST_BUSY:
        rank = len(operands.values[0].shape)
        return (rank - 2, rank - 1)
    return ()


# --- names and shapes ----------------------------------------------------------------------------------------


def _divide_reshape(operands: Operands) -> list[Divided]:
    before = operands.values[0]
    spec = divide_reshaped(before.shape, before.spec, operands.result_shapes[0])
    lost = find_names(before.spec) - find_names(spec)
    if lost:
        operands.gather(0, [dim for dim, axes in enumerate(before.spec) if find_names([axes]) & lost])
    return [Divided(spec, operands.values[0].partial)]


def _divide_transpose(operands: Operands) -> list[Divided]:
    spec = operands.spec(0)
    moved = tuple(spec[dim] for dim in operands.equation.params["permutation"])
    return [Divided(moved, operands.values[0].partial)]


def _divide_broadcast(operands: Operands) -> list[Divided]:
    value, shape = operands.values[0], operands.result_shapes[0]
    found = [UNDIVIDED] * len(shape)
    for dim, to in enumerate(operands.equation.params["broadcast_dimensions"]):
        if value.shape[dim] == shape[to]:
            found[to] = value.spec[dim]
    return [Divided(tuple(found))]


def _divide_constraint(operands: Operands) -> list[Divided]:
    """Divide an array as the user's code says (`jax.lax.with_sharding_constraint`), as far as it says anything."""
    value, mesh = operands.values[0], operands.mesh
    stated = getattr(operands.equation.params.get("sharding"), "spec", None)
    if stated is None:
        return [Divided(value.spec, value.partial)]
    entries = [*stated, *(None for _ in range(len(value.shape) - len(stated)))]
    wanted = tuple(  # `PartitionSpec.UNCONSTRAINED` leaves a division open
        mesh.build_axes(entry) if entry is None or isinstance(entry, str | tuple | list) else axes
        for entry, axes in zip(entries, value.spec, strict=True)
    )
    operands.sum_up(0, wanted=wanted)
    operands.fit(0, wanted)
    return [Divided(wanted)]


def _divide_generated(operands: Operands) -> list[Divided]:
    """Let every device make the whole of what depends on no array: constants, counts, random numbers."""
    for index, value in enumerate(operands.values):
        operands.gather(index, range(len(value.spec)))
    return [Divided(build_undivided(shape)) for shape in operands.result_shapes]


# --- sums ----------------------------------------------------------------------------------------------------


def _divide_reduction(operands: Operands) -> list[Divided]:
    """Divide a reduction; along a divided dimension, it is partial."""
    params, value = operands.equation.params, operands.values[0]
    reduced = params.get("axes", params.get("dimensions", ()))
    partial = find_names(value.spec[dim] for dim in reduced)
    spec = tuple(axes for dim, axes in enumerate(value.spec) if dim not in reduced)
    known = value.partial if operands.equation.primitive.name == "reduce_sum" else frozenset()
    return [Divided(spec, partial | known)] * len(operands.equation.outvars)


Rule = Callable[[Operands], list[Divided]]
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _divide_reshape),
    "sharding_constraint": _divide_constraint,
    "transpose": _divide_transpose,
    "broadcast_in_dim": _divide_broadcast,
    **dict.fromkeys(
        ("iota", "iota_2x32_shape", "empty", "random_bits", "random_seed", "random_fold_in", "random_split",
         "random_wrap", "random_unwrap", "threefry2x32", "rng_bit_generator", "while"),
        _divide_generated,
    ),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod", "reduce_xor",
         "argmax", "argmin"),
        _divide_reduction,
    ),
    "dot_general": divide_dot,
    "conv_general_dilated": divide_convolution,
    "gather": divide_gather,
    **dict.fromkeys(("scatter-add", "scatter_add"), divide_scatter),
}  # fmt: skip

"""Division of the result of each primitive, given that of its operands.

A rule follows the choice of XLA's partitioner where that is free of communication, and otherwise makes the
operands fit: it gathers an operand along a dimension that the primitive needs whole, and sums partial products
before anything but another sum reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .lookups import divide_gather, divide_scatter
from .operands import Operands
from .products import divide_convolution, divide_dot
from .spec import (
    UNDIVIDED,
    Axes,
    Divided,
    Shape,
    Spec,
    build_undivided,
    divide_reshaped,
    find_names,
    merge_axes,
)

# Sums of partial sums, and other names and types of one: the sum over devices may wait until after them.
LINEAR = frozenset({
    "add", "add_any", "convert_element_type", "copy", "expand_dims", "neg", "reduce_sum", "reshape", "squeeze",
    "sub", "transpose", "name", "stop_gradient", "optimization_barrier",
})  # fmt: skip


def divide_equation(operands: Operands) -> list[Divided]:
    """Return the division of each result of an equation, after its operands were made to fit."""
    name = operands.equation.primitive.name
    return _RULES.get(name, _divide_alike)(operands)


def _get_shapes(variables: Iterable[Any]) -> list[Shape]:
    return [tuple(getattr(variable.aval, "shape", ())) for variable in variables]


# --- the same dimensions -------------------------------------------------------------------------------------


def _divide_alike(operands: Operands) -> list[Divided]:
    """Keep the division of dimensions that have the same length in an operand and in the result.

    Operands are divided like each other; one that a device holds whole is sliced.
    """
    busy, shapes = _find_busy(operands), _get_shapes(operands.equation.outvars)
    specs = [_agree(operands, shape, whole=busy) for shape in shapes]
    partial = frozenset[str]().union(*(value.partial for value in operands.values))
    return [Divided(spec, partial) for spec in specs]


def _agree(operands: Operands, shape: Shape, *, whole: Sequence[int]) -> Spec:
    """Return the division of a result of some shape, and make operands of as many dimensions fit.

    Args:
        operands: Operands; scalars and those of other ranks are undivided or gathered.
        shape: Shape of the result [-].
        whole: Dimensions that must not be divided.
    """
    found: list[Axes] = [UNDIVIDED] * len(shape)
    order = sorted(range(len(operands.values)), key=lambda index: -_count_divided(operands.spec(index)))
    same = [index for index in order if len(operands.values[index].shape) == len(shape)]
    for index in (index for index in order if index not in same):
        operands.gather(index, range(len(operands.spec(index))))
    for index in same:
        value = operands.values[index]
        for dim, axes in enumerate(value.spec):
            if not axes:
                continue
            taken = find_names(found)
            kept = merge_axes(found[dim], axes, taken=taken)
            if dim in whole or value.shape[dim] != shape[dim] or kept is None:
                operands.gather(index, [dim])
            else:
                found[dim] = kept
    for index in same:
        value = operands.values[index]
        wanted = tuple(
            axes if value.shape[dim] == shape[dim] else UNDIVIDED for dim, axes in enumerate(found)
        )
        if find_names(wanted) & value.partial:
            operands.sum_up(index, wanted=wanted)
        operands.slice_to(index, wanted)
    return tuple(found)


def _count_divided(spec: Spec) -> int:
    return sum(axis.parts > 1 for axes in spec for axis in axes)


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
    before, (after, *_) = operands.values[0], _get_shapes(operands.equation.outvars)
    spec = divide_reshaped(before.shape, before.spec, after)
    lost = find_names(before.spec) - find_names(spec)
    if lost:
        operands.gather(0, [dim for dim, axes in enumerate(before.spec) if find_names([axes]) & lost])
    return [Divided(spec, operands.values[0].partial)]


def _divide_transpose(operands: Operands) -> list[Divided]:
    spec = operands.spec(0)
    moved = tuple(spec[dim] for dim in operands.equation.params["permutation"])
    return [Divided(moved, operands.values[0].partial)]


def _divide_broadcast(operands: Operands) -> list[Divided]:
    value, (shape, *_) = operands.values[0], _get_shapes(operands.equation.outvars)
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
    wanted = tuple(
        axes if _is_free(entry) else mesh.build_axes(entry)
        for entry, axes in zip(entries, value.spec, strict=True)
    )
    operands.sum_up(0, wanted=wanted)
    operands.fit(0, wanted)
    return [Divided(wanted)]


def _is_free(entry: Any) -> bool:
    """Return whether the entry of a dimension leaves its division open (`PartitionSpec.UNCONSTRAINED`)."""
    return entry is not None and not isinstance(entry, str | tuple | list)


def _divide_generated(operands: Operands) -> list[Divided]:
    """Let every device make the whole of what depends on no array: constants, counts, random numbers."""
    for index, value in enumerate(operands.values):
        operands.gather(index, range(len(value.spec)))
    return [Divided(build_undivided(shape)) for shape in _get_shapes(operands.equation.outvars)]


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

"""Division of matrix products and convolutions.

Where both operands are divided along the same axis of the mesh, or one along a dimension that is summed over, one
of them is made to fit: by slicing the one that a device holds whole, or else by gathering, a variable rather than
samples.
"""

from __future__ import annotations

from collections.abc import Sequence

from .operands import Operands
from .spec import UNDIVIDED, Divided, find_names


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
    dims = (left, right)
    axes = [operands.spec(side)[dims[side]] for side in (0, 1)]
    if find_names([axes[0]]) == find_names([axes[1]]):
        return
    for side in (0, 1):
        other = 1 - side
        if axes[side] and not axes[other] and not find_names([axes[side]]) & find_names(operands.spec(other)):
            spec = list(operands.spec(other))
            spec[dims[other]] = axes[side]
            operands.slice_to(other, tuple(spec))
            return
    for side in _order_by_parts(operands, dims):
        if operands.spec(side)[dims[side]]:
            operands.gather(side, [dims[side]])
            break
    axes = [operands.spec(side)[dims[side]] for side in (0, 1)]
    if find_names([axes[0]]) != find_names([axes[1]]):
        for side in (0, 1):
            operands.gather(side, [dims[side]])


def _order_by_parts(operands: Operands, dims: Sequence[int]) -> list[int]:
    """Return both operands, a variable before samples: of a variable, a device holds a part of what is traced."""

    def holds_part(side: int) -> bool:
        return any(axis.parts > 1 for axis in operands.spec(side)[dims[side]])

    return sorted((0, 1), key=lambda side: not holds_part(side))


def part_free_dimensions(operands: Operands, free: Sequence[Sequence[int]]) -> None:
    """Gather an operand along an axis along which the other one is divided too: a variable before samples."""
    names = [find_names(operands.spec(side)[dim] for dim in free[side]) for side in (0, 1)]
    taken = [find_names(operands.spec(side)) for side in (0, 1)]
    for name in sorted((names[0] & taken[1]) | (names[1] & taken[0])):
        dims = [
            next((dim for dim in free[side] if name in find_names([operands.spec(side)[dim]])), None)
            for side in (0, 1)
        ]
        sides = [side for side in (0, 1) if dims[side] is not None]
        known = [dims[side] or 0 for side in (0, 1)]
        side = next(one for one in _order_by_parts(operands, known) if one in sides)
        operands.gather(side, [known[side]])


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

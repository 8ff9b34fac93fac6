"""Matrix products."""

from __future__ import annotations

from math import prod

from ..ops import OpKind
from .contraction import Contraction
from .rule import Equation, shape_of

__all__ = ["describe_dot", "describe_ragged_dot"]


def describe_dot(equation: Equation, *, variant: str) -> Contraction:
    """Return a `dot_general` as ``batch`` products of m x k by k x n, exactly 2 m n k FLOP each."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (shape_of(variable) for variable in equation.invars[:2])
    k = prod(left[axis] for axis in left_contracted)
    batch = prod(left[axis] for axis in left_batch)
    m = _rest(left, left_contracted, left_batch)
    n = _rest(right, right_contracted, right_batch)
    return Contraction(
        kind=OpKind.DOT, variant=variant, flops=2.0 * batch * m * n * k, m=m, n=n, k=k, batch=batch
    )


def describe_ragged_dot(equation: Equation, *, variant: str) -> Contraction:
    """Return a grouped product (mixture of experts): each row of m x k meets one of the k x n matrices."""
    *_, m, k = shape_of(equation.invars[0])
    n = shape_of(equation.invars[1])[-1]
    return Contraction(kind=OpKind.DOT, variant=variant, flops=2.0 * m * n * k, m=m, n=n, k=k)


def _rest(shape: tuple[int, ...], *taken: tuple[int, ...]) -> int:
    used = {axis for axes in taken for axis in axes}
    return prod(size for axis, size in enumerate(shape) if axis not in used)

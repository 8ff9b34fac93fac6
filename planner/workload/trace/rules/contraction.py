"""A contraction as a matrix product: the result of the dot and convolution rules."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...ops import OpKind
from .cost_rule import Equation, get_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A contraction, with the fields of `Op` [-, FLOP]."""

    kind: OpKind
    variant: str
    flops: float
    m: int
    n: int
    k: int
    batch: int = 1
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    channels_in: int = 0
    channels_out: int = 0
    channels_last: bool = True


def describe_dot(equation: Equation, *, variant: str) -> Contraction:
    """Describe a `dot_general` as ``batch`` products of m × k by k × n: 2 m n k FLOP each."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (get_shape(variable) for variable in equation.invars[:2])
    k = prod(left[axis] for axis in left_contracted)
    batch = prod(left[axis] for axis in left_batch)
    m = _compute_free_size(left, left_contracted, left_batch)
    n = _compute_free_size(right, right_contracted, right_batch)
    return Contraction(
        kind=OpKind.DOT, variant=variant, flops=2.0 * batch * m * n * k, m=m, n=n, k=k, batch=batch
    )


def describe_ragged_dot(equation: Equation, *, variant: str) -> Contraction:
    """Describe a grouped product (mixture of experts): each row of m × k is multiplied by one k × n matrix."""
    *_, m, k = get_shape(equation.invars[0])
    n = get_shape(equation.invars[1])[-1]
    return Contraction(kind=OpKind.DOT, variant=variant, flops=2.0 * m * n * k, m=m, n=n, k=k)


def _compute_free_size(shape: tuple[int, ...], *taken: tuple[int, ...]) -> int:
    used = {axis for axes in taken for axis in axes}
    return prod(size for axis, size in enumerate(shape) if axis not in used)

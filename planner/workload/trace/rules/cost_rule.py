"""Cost rule of a primitive, and size functions for rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from ...ops import OpKind

# A jax.core.JaxprEqn: `primitive.name`, `params`, `invars[i].aval`, `outvars[i].aval`. JAX moves the class
# between modules from release to release, so it has no better name here.
Equation = Any


class Role(Enum):
    """Role of a primitive in fusion."""

    VIEW = "view"  # free: another name or shape for the same bytes
    POINTWISE = "pointwise"  # can be recomputed inside its consumers
    REDUCE = "reduce"  # includes pointwise work, ends the fusion
    BARRIER = "barrier"  # a separate kernel with operands and results in memory
    CONTRACTION = "contraction"  # a separate kernel, described as a matrix product


FUSIBLE = (Role.POINTWISE, Role.REDUCE)


def get_shape(variable: Any) -> tuple[int, ...]:
    """Return a variable's shape; `()` for tokens and similar."""
    return tuple(getattr(variable.aval, "shape", ()))


def count_elements(variable: Any) -> int:
    """Return the number of elements of a variable [-]."""
    return prod(getattr(variable.aval, "shape", ()))


def nbytes(variable: Any) -> int:
    """Return a variable's size [bytes]; 0 for tokens; a random key counts as its raw words."""
    dtype = getattr(variable.aval, "dtype", None)
    return 0 if dtype is None else prod(variable.aval.shape) * getattr(dtype, "itemsize", 8)


def has_same_size(equation: Equation) -> bool:
    """Return whether the first operand and the result have the same number of elements."""
    return count_elements(equation.invars[0]) == count_elements(equation.outvars[0])


def count_nothing(equation: Equation) -> float:
    """Return 0 for primitives that only move data."""
    return 0.0


def count_outputs(equation: Equation) -> float:
    """Return one FLOP per element of the result [FLOP]."""
    return float(count_elements(equation.outvars[0]))


def read_selected(equation: Equation) -> tuple[int, ...]:
    """Return the bytes read by a slice or a look-up: those it returns, and its indices, not the whole operand."""
    first = min(nbytes(equation.invars[0]), nbytes(equation.outvars[0]))
    return (first, *(nbytes(variable) for variable in equation.invars[1:]))


def read_all_but_first(equation: Equation) -> tuple[int, ...]:
    """Return the bytes read by an in-place update: the update and its indices, not the whole array."""
    return (0, *(nbytes(variable) for variable in equation.invars[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Cost rule of a primitive.

    Args:
        kind: Kind in the table of operations.
        role: Role in fusion.
        flops: Function of the FLOPs of one execution [FLOP].
        reads: Function of the bytes read from each operand, in the order of `invars` [bytes].
        writes: Function of the bytes written to all results [bytes].
        window: Spatial window and stride of a pooling primitive; None for everything else.
        is_view: Predicate for equations that move no data, unlike others of their kind.
        known: Whether the work is modelled; if not, bytes follow from shapes.
    """

    kind: OpKind
    role: Role
    flops: Callable[[Equation], float] = count_nothing
    reads: Callable[[Equation], tuple[int, ...]] = lambda equation: tuple(map(nbytes, equation.invars))
    writes: Callable[[Equation], int] = lambda equation: sum(map(nbytes, equation.outvars))
    window: Callable[[Equation], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    is_view: Callable[[Equation], bool] = lambda equation: False
    known: bool = True

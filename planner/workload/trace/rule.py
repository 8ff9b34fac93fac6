"""What a rule says about one kind of primitive, and the sizes that rules are written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from ..ops import OpKind

__all__ = ["FUSIBLE", "Equation", "Role", "Rule", "elements", "nbytes", "no_flops", "per_output", "shape_of"]

# A jax.core.JaxprEqn: `primitive.name`, `params`, `invars[i].aval`, `outvars[i].aval`. JAX moves the class
# between modules from release to release, so it has no better name here.
Equation = Any


class Role(Enum):
    """How a primitive takes part in fusion."""

    VIEW = "view"  # costs nothing: a new name or shape for the same bytes
    POINTWISE = "pointwise"  # can be recomputed inside whatever consumes it
    REDUCE = "reduce"  # takes pointwise work in, ends the fusion
    BARRIER = "barrier"  # a kernel of its own; operands and results are in memory
    CONTRACTION = "contraction"  # a kernel of its own, described as a matrix product


FUSIBLE = (Role.POINTWISE, Role.REDUCE)


def shape_of(variable: Any) -> tuple[int, ...]:
    """Return a variable's shape; `()` for tokens and the like."""
    return tuple(getattr(variable.aval, "shape", ()))


def elements(variable: Any) -> int:
    """Return how many elements a variable has [-]."""
    return prod(getattr(variable.aval, "shape", ()))


def nbytes(variable: Any) -> int:
    """Return a variable's size [bytes]; 0 for tokens; a random key counts as its raw words."""
    dtype = getattr(variable.aval, "dtype", None)
    return 0 if dtype is None else prod(variable.aval.shape) * getattr(dtype, "itemsize", 8)


def no_flops(equation: Equation) -> float:
    """Return 0: data is moved, nothing is computed."""
    return 0.0


def per_output(equation: Equation) -> float:
    """Return one operation an element of the result [FLOP]."""
    return float(elements(equation.outvars[0]))


def _whole_reads(equation: Equation) -> tuple[int, ...]:
    return tuple(nbytes(variable) for variable in equation.invars)


def _whole_writes(equation: Equation) -> int:
    return sum(nbytes(variable) for variable in equation.outvars)


def _never(equation: Equation) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one kind of primitive is counted.

    Args:
        kind: Column of the table of ops.
        role: Part in fusion.
        flops: Operations of one execution [FLOP].
        reads: Bytes read of each operand [bytes]; None: all of them.
        writes: Bytes written of all results together [bytes]; None: all of them.
        window: Spatial window and stride of a pooling primitive; None for everything else.
        is_view: Whether this equation moves nothing although others of its kind do.
        known: False: bytes are from the shapes, the work is not understood.
    """

    kind: OpKind
    role: Role
    flops: Callable[[Equation], float] = no_flops
    reads: Callable[[Equation], tuple[int, ...]] | None = None
    writes: Callable[[Equation], int] | None = None
    window: Callable[[Equation], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    is_view: Callable[[Equation], bool] = _never
    known: bool = True

    def bytes_read(self, equation: Equation) -> tuple[int, ...]:
        """Return the bytes read of each operand, in the order of `invars` [bytes]."""
        return (self.reads or _whole_reads)(equation)

    def bytes_written(self, equation: Equation) -> int:
        """Return the bytes written of all results together [bytes]."""
        return (self.writes or _whole_writes)(equation)

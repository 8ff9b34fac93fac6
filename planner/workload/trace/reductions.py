"""Rules for reductions along axes: one operation an element that is read."""

from __future__ import annotations

from ..ops import OpKind
from .rule import Equation, Role, Rule, elements

__all__ = ["RULES"]

_REDUCTIONS = (
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
    "argmax", "argmin", "reduce",
)  # fmt: skip
_SCANS = (
    "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum",
)  # fmt: skip


def _per_input(equation: Equation) -> float:
    return float(elements(equation.invars[0]))


def _reduces_nothing(equation: Equation) -> bool:
    return elements(equation.invars[0]) == elements(equation.outvars[0])


_REDUCE = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_per_input)
_REDUCE_OR_RENAME = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_per_input, is_view=_reduces_nothing)
_PREFIX = Rule(kind=OpKind.REDUCE, role=Role.BARRIER, flops=_per_input)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _REDUCE_OR_RENAME),
    "argmax": _REDUCE,
    "argmin": _REDUCE,
    "reduce": _REDUCE,
    **dict.fromkeys(_SCANS, _PREFIX),
}

"""Rules for reductions along axes: one FLOP per input element."""

from __future__ import annotations

from ...ops import OpKind
from .cost_rule import Equation, Role, Rule, count_elements

_REDUCTIONS = (
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
    "argmax", "argmin", "reduce",
)  # fmt: skip
_SCANS = (
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
)


def _count_inputs(equation: Equation) -> float:
    return float(count_elements(equation.invars[0]))


def _is_no_reduction(equation: Equation) -> bool:
    return count_elements(equation.invars[0]) == count_elements(equation.outvars[0])


_REDUCE = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_count_inputs)
_REDUCE_OR_RENAME = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_count_inputs, is_view=_is_no_reduction)
_PREFIX = Rule(kind=OpKind.REDUCE, role=Role.BARRIER, flops=_count_inputs)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _REDUCE_OR_RENAME),
    "argmax": _REDUCE,
    "argmin": _REDUCE,
    "reduce": _REDUCE,
    **dict.fromkeys(_SCANS, _PREFIX),
}

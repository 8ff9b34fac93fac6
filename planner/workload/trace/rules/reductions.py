"""Rules for reductions along axes: one FLOP per input element."""

from __future__ import annotations

from ...ops import OpKind
from .cost_rule import Equation, Role, Rule, count_elements, has_same_size

_REDUCTIONS = (
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
)  # fmt: skip
_SCANS = ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")


def _count_inputs(equation: Equation) -> float:
    return float(count_elements(equation.invars[0]))


_REDUCE = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_count_inputs)
_REDUCE_OR_RENAME = Rule(kind=OpKind.REDUCE, role=Role.REDUCE, flops=_count_inputs, is_view=has_same_size)
_PREFIX = Rule(kind=OpKind.REDUCE, role=Role.BARRIER, flops=_count_inputs)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _REDUCE_OR_RENAME),
    **dict.fromkeys(("argmax", "argmin", "reduce"), _REDUCE),
    **dict.fromkeys(_SCANS, _PREFIX),
}

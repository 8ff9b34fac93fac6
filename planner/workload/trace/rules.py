"""The registry: one rule a primitive, from all the small tables."""

from __future__ import annotations

from ..ops import OpKind
from . import elementwise, irregular, movement, reductions, windows
from .rule import Role, Rule

__all__ = ["DOTS", "RULES", "rule_for"]

DOTS = ("dot_general", "ragged_dot", "ragged_dot_general")

_CONVOLUTION = Rule(kind=OpKind.CONV, role=Role.CONTRACTION)
_DOT = Rule(kind=OpKind.DOT, role=Role.CONTRACTION)
_UNKNOWN = Rule(kind=OpKind.OTHER, role=Role.BARRIER, known=False)

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **reductions.RULES,
    **windows.RULES,
    **irregular.RULES,
    "conv_general_dilated": _CONVOLUTION,
    **dict.fromkeys(DOTS, _DOT),
}


def rule_for(name: str) -> Rule:
    """Return the rule of a primitive; what is unknown is a barrier whose bytes are those of its shapes."""
    return RULES.get(name, _UNKNOWN)

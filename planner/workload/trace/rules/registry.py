"""Registry of rules, one per primitive."""

from __future__ import annotations

from ...ops import OpKind
from . import elementwise, gather_scatter, movement, pooling, reductions
from .cost_rule import Role, Rule

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")  # written by the division over a mesh
DOTS = ("dot_general", "ragged_dot", "ragged_dot_general")

_CONVOLUTION = Rule(kind=OpKind.CONV, role=Role.CONTRACTION)
_DOT = Rule(kind=OpKind.DOT, role=Role.CONTRACTION)
_COLLECTIVE = Rule(kind=OpKind.COLLECTIVE, role=Role.BARRIER)
_UNKNOWN = Rule(kind=OpKind.OTHER, role=Role.BARRIER, known=False)

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **reductions.RULES,
    **pooling.RULES,
    **gather_scatter.RULES,
    "conv_general_dilated": _CONVOLUTION,
    **dict.fromkeys(DOTS, _DOT),
    **dict.fromkeys(COLLECTIVES, _COLLECTIVE),
}


def find_rule(name: str) -> Rule:
    """Return the rule of a primitive; an unknown one is a barrier whose bytes follow from its shapes."""
    return RULES.get(name, _UNKNOWN)

"""Rules for pooling: window reductions and their gradients."""

from __future__ import annotations

from math import prod

from ...ops import OpKind
from .cost_rule import Equation, Role, Rule, count_elements


def _get_window(equation: Equation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the window and its stride over pooled axes [-]."""
    sizes = tuple(equation.params["window_dimensions"])
    strides = tuple(equation.params.get("window_strides") or (1,) * len(sizes))
    pooled = [axis for axis, size in enumerate(sizes) if size > 1 or strides[axis] > 1]
    return tuple(sizes[axis] for axis in pooled), tuple(strides[axis] for axis in pooled)


def _compute_forward_flops(equation: Equation) -> float:
    """Return window × results FLOP, without the zeros of a dilated operand (an average's gradient) [FLOP]."""
    dilation = equation.params.get("base_dilation") or (1,)
    window = prod(equation.params["window_dimensions"])
    return float(count_elements(equation.outvars[0]) * window / prod(dilation))


def _compute_gradient_flops(equation: Equation) -> float:
    """Return one comparison per window element and one addition per window [FLOP].

    The first operand (source of the gradient) has one element per window.
    """
    return float(count_elements(equation.invars[0]) * (prod(equation.params["window_dimensions"]) + 1))


_POOL = Rule(kind=OpKind.POOL, role=Role.BARRIER, flops=_compute_forward_flops, window=_get_window)
_GRADIENT = Rule(kind=OpKind.POOL, role=Role.BARRIER, flops=_compute_gradient_flops, window=_get_window)

RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"), _POOL),
    "select_and_scatter_add": _GRADIENT,
    "select_and_scatter": _GRADIENT,
    "select_and_gather_add": _GRADIENT,
}

"""Rules for elementwise work: one FLOP per element, also for transcendental functions."""

from __future__ import annotations

from ...ops import OpKind
from .cost_rule import Equation, Role, Rule, count_outputs, has_same_size

_ARITHMETIC = (
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "cos", "cosh", "digamma",
    "div", "eq", "eq_to", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma",
    "igammac", "igamma_grad_a", "imag", "integer_pow", "is_finite", "le", "le_to", "lgamma", "log", "log1p",
    "logistic", "lt", "lt_to", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter", "not", "or",
    "polygamma", "population_count", "pow", "psi", "random_gamma_grad", "real",
    "regularized_incomplete_beta", "rem", "round", "rsqrt", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan",
    "tanh", "xor", "zeta",
)  # fmt: skip

_POINTWISE = Rule(kind=OpKind.ELEMENTWISE, role=Role.POINTWISE, flops=count_outputs)


def _has_same_type(equation: Equation) -> bool:
    """Return whether a conversion keeps the type, or converts a scalar."""
    source, result = equation.invars[0].aval, equation.outvars[0].aval
    return getattr(source, "dtype", None) == getattr(result, "dtype", None)


_CONVERT = Rule(kind=OpKind.ELEMENTWISE, role=Role.POINTWISE, is_view=_has_same_type)
_BROADCAST = Rule(kind=OpKind.MOVE, role=Role.POINTWISE, is_view=has_same_size)
_GENERATE = Rule(kind=OpKind.MOVE, role=Role.POINTWISE)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ARITHMETIC, _POINTWISE),
    "convert_element_type": _CONVERT,
    "reduce_precision": _POINTWISE,
    "broadcast_in_dim": _BROADCAST,
    "broadcast_to": _BROADCAST,
    **dict.fromkeys(("iota", "iota_2x32_shape", "zeros_like", "empty"), _GENERATE),
}

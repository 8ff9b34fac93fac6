"""Rules of JAX primitives: elementwise, reductions, pooling, data movement, gather, linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log2, prod
from typing import Any

from ...ops import OpKind
from .cost_rule import Equation, Role, Rule, count_elements, get_shape, nbytes

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
_REDUCTIONS = (
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
)  # fmt: skip
_FREE = (
    "bitcast_convert_type", "from_edtype", "layout_constraint", "name", "pin", "reshard",
    "to_edtype", "unpin", "copy", "copy_p", "device_put", "expand_dims", "mesh_cast",
    "optimization_barrier", "pcast", "pvary", "random_unwrap", "random_wrap", "reshape",
    "sharding_constraint", "squeeze", "stop_gradient", "symbolic_zeros", "reduced_vary_cast",
)  # fmt: skip
_RANDOM = (
    "random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed", "random_split",
    "rng_bit_generator", "rng_uniform", "threefry2x32", "threefry4x32", "philox2x32", "philox4x32",
)  # fmt: skip
_COMBINING_SCATTERS = (
    "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul", "scatter_min",
    "scatter_max", "scatter-sub", "scatter_sub",
)  # fmt: skip
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")  # written by the division over a mesh
DOTS = ("dot_general", "ragged_dot", "ragged_dot_general")


def keeps_order(shape: tuple[int, ...], permutation: tuple[int, ...]) -> bool:
    """Return whether a transposition moves only axes of length one.

    Example:
        >>> keeps_order((8, 1, 3), (1, 0, 2)), keeps_order((8, 2, 3), (1, 0, 2))
        (True, False)
    """
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)


def build_transposition(array: Any, permutation: tuple[int, ...]) -> Equation:
    """Build the equation that transposes an array of a given shape and type."""
    import jax

    like = jax.ShapeDtypeStruct(array.shape, array.dtype)
    return jax.make_jaxpr(lambda x: jax.lax.transpose(x, permutation))(like).eqns[0]


def _has_same_type(equation: Equation) -> bool:
    """Return whether a conversion keeps the type, or converts a scalar."""
    source, result = equation.invars[0].aval, equation.outvars[0].aval
    return getattr(source, "dtype", None) == getattr(result, "dtype", None)


def _has_same_size(equation: Equation) -> bool:
    return count_elements(equation.invars[0]) == count_elements(equation.outvars[0])


def _count_inputs(equation: Equation) -> float:
    return float(count_elements(equation.invars[0]))


def _count_outputs(equation: Equation) -> float:
    return float(count_elements(equation.outvars[0]))


def _read_selected(equation: Equation) -> tuple[int, ...]:
    """Return the bytes read by a slice or a look-up: those it returns, and its indices, not the whole operand."""
    first = min(nbytes(equation.invars[0]), nbytes(equation.outvars[0]))
    return (first, *map(nbytes, equation.invars[1:]))


def _read_all_but_first(equation: Equation) -> tuple[int, ...]:
    """Return the bytes read by an in-place update: the update and its indices, not the whole array."""
    return (0, *map(nbytes, equation.invars[1:]))


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


def _compute_scatter_reads(equation: Equation) -> tuple[int, ...]:
    """Return the bytes read by a combining scatter: affected rows, indices and updates."""
    _, indices, updates = equation.invars[:3]
    return (min(nbytes(equation.invars[0]), nbytes(updates)), nbytes(indices), nbytes(updates))


def _compute_scatter_writes(equation: Equation) -> int:
    return min(nbytes(equation.outvars[0]), nbytes(equation.invars[2]))


def _compute_sort_flops(equation: Equation) -> float:
    """Return n log2 n comparisons along the sorted (last) axis [FLOP]."""
    count = count_elements(equation.invars[0])
    axis = equation.params.get("dimension", -1)
    length = get_shape(equation.invars[0])[axis] if count else 1
    return count * max(1.0, log2(max(length, 1)))


def _compute_fft_flops(equation: Equation) -> float:
    """Return 5 n log2 n for each transform, the usual count of a complex radix-2 FFT [FLOP]."""
    length: int = prod(equation.params["fft_lengths"])
    batch = max(count_elements(equation.invars[0]), count_elements(equation.outvars[0])) / max(length, 1)
    return 5.0 * batch * length * log2(max(length, 2))


def _compute_solve_flops(equation: Equation) -> float:
    """Return n² FLOP per right-hand side for back substitution."""
    *batch, n, _ = get_shape(equation.invars[0])
    return float(count_elements(equation.invars[1]) * n if prod(batch) else 0.0)


_pointwise, _reduction, _barrier, _product = (
    partial(Rule, role=role) for role in (Role.POINTWISE, Role.REDUCE, Role.BARRIER, Role.CONTRACTION)
)


def _build_linalg(flops: Callable[[float, int, int], float]) -> Rule:
    """Return the rule of a factorization, by its FLOPs for a number of matrices of some rows and columns."""

    def compute_flops(equation: Equation) -> float:
        *batch, rows, columns = get_shape(equation.invars[0])
        return float(flops(float(prod(batch)), rows, columns))

    return _barrier(kind=OpKind.LINALG, flops=compute_flops)


_ARITHMETIC_RULE = _pointwise(kind=OpKind.ELEMENTWISE, flops=_count_outputs)
_RESIZE = _pointwise(kind=OpKind.MOVE, is_view=_has_same_size)  # no work if nothing is added
_MOVE = _pointwise(kind=OpKind.MOVE)
_UNKNOWN = _barrier(kind=OpKind.OTHER, known=False)

ELEMENTWISE_RULES: dict[str, Rule] = {
    **dict.fromkeys((*_ARITHMETIC, "reduce_precision"), _ARITHMETIC_RULE),
    "convert_element_type": _pointwise(kind=OpKind.ELEMENTWISE, is_view=_has_same_type),
    **dict.fromkeys(("broadcast_in_dim", "broadcast_to"), _RESIZE),
    **dict.fromkeys(("iota", "iota_2x32_shape", "zeros_like", "empty"), _MOVE),
}
# FLOPs of factorizations: Golub and Van Loan, "Matrix Computations", 4th ed., 4.2.5 (n³/3), 3.2.11 (2 n³/3 for a
# square matrix), 5.2.2 (2 n² (m - n/3)), 8.3.3 (9 n³, with eigenvectors).
RULES: dict[str, Rule] = {
    **ELEMENTWISE_RULES,
    # data movement
    **dict.fromkeys(_FREE, Rule(kind=OpKind.MOVE, role=Role.VIEW)),
    "transpose": _pointwise(
        kind=OpKind.MOVE,
        is_view=lambda equation: keeps_order(get_shape(equation.invars[0]), equation.params["permutation"]),
    ),
    **dict.fromkeys(("rev", "split", "unstack"), _MOVE),
    **dict.fromkeys(("pad", "tile"), _RESIZE),
    "slice": _pointwise(kind=OpKind.MOVE, reads=_read_selected, is_view=_has_same_size),
    **dict.fromkeys(
        ("stack", "concatenate"), _barrier(kind=OpKind.MOVE, is_view=lambda equation: len(equation.invars) == 1)
    ),
    "dynamic_slice": _pointwise(kind=OpKind.GATHER, reads=_read_selected, is_view=_has_same_size),
    "dynamic_update_slice": _barrier(
        kind=OpKind.SCATTER, reads=_read_all_but_first, writes=lambda equation: nbytes(equation.invars[1])
    ),
    # reductions and pooling
    **dict.fromkeys(_REDUCTIONS, _reduction(kind=OpKind.REDUCE, flops=_count_inputs, is_view=_has_same_size)),
    **dict.fromkeys(("argmax", "argmin", "reduce"), _reduction(kind=OpKind.REDUCE, flops=_count_inputs)),
    **dict.fromkeys(
        ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"),
        _barrier(kind=OpKind.REDUCE, flops=_count_inputs),
    ),
    **dict.fromkeys(
        ("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"),
        _barrier(kind=OpKind.POOL, flops=_compute_forward_flops, window=_get_window),
    ),
    **dict.fromkeys(
        ("select_and_scatter_add", "select_and_scatter", "select_and_gather_add"),
        _barrier(kind=OpKind.POOL, flops=_compute_gradient_flops, window=_get_window),
    ),
    # gather and scatter
    "gather": _barrier(kind=OpKind.GATHER, reads=_read_selected),
    "scatter": _barrier(kind=OpKind.SCATTER, reads=_read_all_but_first, writes=_compute_scatter_writes),
    **dict.fromkeys(
        _COMBINING_SCATTERS,
        _barrier(
            kind=OpKind.SCATTER,
            flops=lambda equation: float(count_elements(equation.invars[2])),
            reads=_compute_scatter_reads,
            writes=_compute_scatter_writes,
        ),
    ),
    **dict.fromkeys(("sort", "top_k", "approx_top_k"), _barrier(kind=OpKind.SORT, flops=_compute_sort_flops)),
    **dict.fromkeys(_RANDOM, _barrier(kind=OpKind.RANDOM, flops=_count_outputs)),
    # linear algebra
    "fft": _barrier(kind=OpKind.LINALG, flops=_compute_fft_flops),
    "triangular_solve": _barrier(kind=OpKind.LINALG, flops=_compute_solve_flops),
    "cholesky": _build_linalg(lambda batch, n, _: batch * n**3 / 3.0),
    "lu": _build_linalg(lambda batch, m, n: batch * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3)),
    **dict.fromkeys(
        ("qr", "geqrf", "householder_product"), _build_linalg(lambda batch, m, n: batch * 2 * n**2 * (m - n / 3))
    ),
    **dict.fromkeys(
        ("eigh", "eig", "svd", "schur"),
        _build_linalg(lambda batch, m, n: 9.0 * batch * min(m, n) ** 2 * max(m, n)),
    ),
    "conv_general_dilated": _product(kind=OpKind.CONV),
    **dict.fromkeys(DOTS, _product(kind=OpKind.DOT)),
    **dict.fromkeys(COLLECTIVES, _barrier(kind=OpKind.COLLECTIVE)),
}


def find_rule(name: str) -> Rule:
    """Return the rule of a primitive; an unknown one is a barrier whose bytes follow from its shapes."""
    return RULES.get(name, _UNKNOWN)

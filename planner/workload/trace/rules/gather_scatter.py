"""Rules for gather, scatter, sorting, random numbers and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

from ...ops import OpKind
from .cost_rule import (
    Equation,
    Role,
    Rule,
    count_elements,
    count_outputs,
    get_shape,
    nbytes,
    read_all_but_first,
    read_selected,
)


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


def _build_linalg(flops: Callable[[float, int, int], float]) -> Rule:
    """Return the rule of a factorization, by its FLOPs for a number of matrices of some rows and columns."""

    def compute_flops(equation: Equation) -> float:
        *batch, rows, columns = get_shape(equation.invars[0])
        return float(flops(float(prod(batch)), rows, columns))

    return _build_barrier(OpKind.LINALG, compute_flops)


def _build_barrier(kind: OpKind, flops: Callable[[Equation], float]) -> Rule:
    return Rule(kind=kind, role=Role.BARRIER, flops=flops)


# FLOPs of factorizations: Golub and Van Loan, "Matrix Computations", 4th ed., 4.2.5 (n³/3), 3.2.11 (2 n³/3 for a
# square matrix), 5.2.2 (2 n² (m - n/3)), 8.3.3 (9 n³, with eigenvectors).
_CHOLESKY = _build_linalg(lambda batch, n, _: batch * n**3 / 3.0)
_LU = _build_linalg(lambda batch, m, n: batch * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3))
_QR = _build_linalg(lambda batch, m, n: batch * 2 * n**2 * (m - n / 3))
_EIGEN = _build_linalg(lambda batch, m, n: 9.0 * batch * min(m, n) ** 2 * max(m, n))
_SCATTER = Rule(
    kind=OpKind.SCATTER,
    role=Role.BARRIER,
    flops=lambda equation: float(count_elements(equation.invars[2])),
    reads=_compute_scatter_reads,
    writes=_compute_scatter_writes,
)
_OVERWRITE = Rule(
    kind=OpKind.SCATTER, role=Role.BARRIER, reads=read_all_but_first, writes=_compute_scatter_writes
)
_RANDOM = Rule(kind=OpKind.RANDOM, role=Role.BARRIER, flops=count_outputs)

RULES: dict[str, Rule] = {
    "gather": Rule(kind=OpKind.GATHER, role=Role.BARRIER, reads=read_selected),
    "scatter": _OVERWRITE,
    **dict.fromkeys(("scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul",
                     "scatter_min", "scatter_max", "scatter-sub", "scatter_sub"), _SCATTER),
    **dict.fromkeys(("sort", "top_k", "approx_top_k"), _build_barrier(OpKind.SORT, _compute_sort_flops)),
    **dict.fromkeys(("random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed",
                     "random_split", "rng_bit_generator", "rng_uniform", "threefry2x32", "threefry4x32",
                     "philox2x32", "philox4x32"), _RANDOM),
    "fft": _build_barrier(OpKind.LINALG, _compute_fft_flops),
    "cholesky": _CHOLESKY,
    "lu": _LU,
    **dict.fromkeys(("qr", "geqrf", "householder_product"), _QR),
    "triangular_solve": _build_barrier(OpKind.LINALG, _compute_solve_flops),
    **dict.fromkeys(("eigh", "eig", "svd", "schur"), _EIGEN),
}  # fmt: skip

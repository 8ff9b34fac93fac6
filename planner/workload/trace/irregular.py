"""Rules for look-ups, sorts, random numbers and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

from ..ops import OpKind
from .rule import Equation, Role, Rule, elements, nbytes, per_output, shape_of

__all__ = ["RULES"]


def _gather_reads(equation: Equation) -> tuple[int, ...]:
    """A look-up reads the rows that it returns and the indices, not the whole table."""
    table = min(nbytes(equation.invars[0]), nbytes(equation.outvars[0]))
    return (table, *(nbytes(variable) for variable in equation.invars[1:]))


def _scatter_reads(equation: Equation) -> tuple[int, ...]:
    """A scatter that combines reads the rows it touches, the indices and the updates."""
    _, indices, updates = equation.invars[:3]
    return (min(nbytes(equation.invars[0]), nbytes(updates)), nbytes(indices), nbytes(updates))


def _overwrite_reads(equation: Equation) -> tuple[int, ...]:
    return (0, *_scatter_reads(equation)[1:])


def _scatter_writes(equation: Equation) -> int:
    return min(nbytes(equation.outvars[0]), nbytes(equation.invars[2]))


def _scatter_flops(equation: Equation) -> float:
    return float(elements(equation.invars[2]))


def _sort_flops(equation: Equation) -> float:
    """Return n log2 n comparisons along the sorted (last) axis [FLOP]."""
    count = elements(equation.invars[0])
    axis = equation.params.get("dimension", -1)
    length = shape_of(equation.invars[0])[axis] if count else 1
    return count * max(1.0, log2(max(length, 1)))


def _fft_flops(equation: Equation) -> float:
    """Return 5 n log2 n for each transform, the usual count of a complex radix-2 FFT [FLOP]."""
    length: int = prod(equation.params["fft_lengths"])
    batch = max(elements(equation.invars[0]), elements(equation.outvars[0])) / max(length, 1)
    return 5.0 * batch * length * log2(max(length, 2))


def _matrix(equation: Equation, operand: int = 0) -> tuple[float, int, int]:
    *batch, rows, columns = shape_of(equation.invars[operand])
    return float(prod(batch)), rows, columns


def _cholesky_flops(equation: Equation) -> float:
    """Golub and Van Loan, "Matrix Computations", 4th ed., 4.2.5: n^3/3."""
    batch, n, _ = _matrix(equation)
    return batch * n**3 / 3.0


def _lu_flops(equation: Equation) -> float:
    """Golub and Van Loan, "Matrix Computations", 4th ed., 3.2.11: 2 n^3/3 for a square matrix."""
    batch, rows, columns = _matrix(equation)
    low, high = sorted((rows, columns))
    return float(batch * (high * low**2 - low**3 / 3))


def _qr_flops(equation: Equation) -> float:
    """Golub and Van Loan, "Matrix Computations", 4th ed., 5.2.2: 2 n^2 (m - n/3)."""
    batch, rows, columns = _matrix(equation)
    return batch * 2 * columns**2 * (rows - columns / 3)


def _solve_flops(equation: Equation) -> float:
    """Back substitution: n^2 for each right-hand side."""
    batch, n, _ = _matrix(equation)
    return float(elements(equation.invars[1]) * n if batch else 0.0)


def _eigen_flops(equation: Equation) -> float:
    """Golub and Van Loan, "Matrix Computations", 4th ed., 8.3.3: 9 n^3 with eigenvectors."""
    batch, rows, columns = _matrix(equation)
    return 9.0 * batch * min(rows, columns) ** 2 * max(rows, columns)


def _barrier(kind: OpKind, flops: Callable[[Equation], float]) -> Rule:
    return Rule(kind=kind, role=Role.BARRIER, flops=flops)


_SCATTER = Rule(
    kind=OpKind.SCATTER, role=Role.BARRIER, flops=_scatter_flops, reads=_scatter_reads, writes=_scatter_writes
)
_OVERWRITE = Rule(kind=OpKind.SCATTER, role=Role.BARRIER, reads=_overwrite_reads, writes=_scatter_writes)
_RANDOM = Rule(kind=OpKind.RANDOM, role=Role.BARRIER, flops=per_output)

RULES: dict[str, Rule] = {
    "gather": Rule(kind=OpKind.GATHER, role=Role.BARRIER, reads=_gather_reads),
    "scatter": _OVERWRITE,
    **dict.fromkeys(("scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul",
                     "scatter_min", "scatter_max", "scatter-sub", "scatter_sub"), _SCATTER),
    **dict.fromkeys(("sort", "top_k", "approx_top_k"), _barrier(OpKind.SORT, _sort_flops)),
    **dict.fromkeys(("random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed",
                     "random_split", "rng_bit_generator", "rng_uniform", "threefry2x32", "threefry4x32",
                     "philox2x32", "philox4x32"), _RANDOM),
    "fft": _barrier(OpKind.LINALG, _fft_flops),
    "cholesky": _barrier(OpKind.LINALG, _cholesky_flops),
    "lu": _barrier(OpKind.LINALG, _lu_flops),
    **dict.fromkeys(("qr", "geqrf", "householder_product"), _barrier(OpKind.LINALG, _qr_flops)),
    "triangular_solve": _barrier(OpKind.LINALG, _solve_flops),
    **dict.fromkeys(("eigh", "eig", "svd", "schur"), _barrier(OpKind.LINALG, _eigen_flops)),
}  # fmt: skip

"""Rules of JAX primitives: role in fusion, FLOPs and bytes, and products as dots and convolutions.

Convolutions and their gradients are counted without multiplications by inserted zeros. JAX writes all three as
``conv_general_dilated``. The gradient to the input dilates the output's gradient with zeros (``lhs_dilation``
is the layer's stride) and reverses the kernel. The gradient to the weights swaps batch and features of the image
(``lhs_spec``), dilates the gradient as a kernel (``rhs_dilation`` is the layer's stride) and turns feature groups
into batch groups. Zeros of SAME padding are counted, as usual.

A transposed convolution is the input gradient of an ordinary one; it is described as that ordinary one, the
way cuDNN runs it: its forward pass is ``dgrad``, its input gradient is ``fprop``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import log2, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from ..ops import OpKind

# A jax.core.JaxprEqn: `primitive.name`, `params`, `invars[i].aval`, `outvars[i].aval`. JAX moves the class
# between modules from release to release, so it has no better name here.
Equation = Any


class Role(Enum):
    """Role of a primitive in fusion."""

    VIEW = "view"  # free: another name or shape for the same bytes
    POINTWISE = "pointwise"  # can be recomputed inside its consumers
    REDUCE = "reduce"  # includes pointwise work, ends the fusion
    BARRIER = "barrier"  # a separate kernel with operands and results in memory
    CONTRACTION = "contraction"  # a separate kernel, described as a matrix product


FUSIBLE = (Role.POINTWISE, Role.REDUCE)
NO_ARITHMETIC = (OpKind.MOVE, OpKind.GATHER, OpKind.SCATTER)


def get_shape(variable: Any) -> tuple[int, ...]:
    """Return a variable's shape; `()` for tokens and similar."""
    return tuple(getattr(variable.aval, "shape", ()))


def count_elements(variable: Any) -> int:
    """Return the number of elements of a variable [-]."""
    return prod(getattr(variable.aval, "shape", ()))


def nbytes(variable: Any) -> int:
    """Return a variable's size [bytes]; 0 for tokens; a random key counts as its raw words."""
    dtype = getattr(variable.aval, "dtype", None)
    return 0 if dtype is None else prod(variable.aval.shape) * getattr(dtype, "itemsize", 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Cost rule of a primitive."""

    kind: OpKind
    role: Role
    flops: Callable[[Equation], float] = lambda equation: 0.0  # of one execution [FLOP]
    # bytes read from each operand, in the order of `invars`, and those written to all results [bytes]
    reads: Callable[[Equation], tuple[int, ...]] = lambda equation: tuple(map(nbytes, equation.invars))
    writes: Callable[[Equation], int] = lambda equation: sum(map(nbytes, equation.outvars))
    is_view: Callable[[Equation], bool] = lambda equation: False  # whether it moves no data, unlike others
    known: bool = True  # whether the work is modelled; if not, bytes follow from shapes


Variant = Literal["fprop", "dgrad", "wgrad"]
Product = dict[str, Any]  # a contraction, as the fields of an `Op` [-, FLOP]


def build_product(*, m: int, n: int, k: int, batch: int = 1, variant: str = "") -> Product:
    """Build ``batch`` independent matrix products: 2 m n k FLOP each."""
    sizes = {"m": m, "n": n, "k": k, "batch": batch}
    return {"kind": OpKind.DOT, "variant": variant, "flops": 2.0 * batch * m * n * k, **sizes}


def build_convolution(
    variant: Variant,
    *,
    batch: int,
    image: tuple[int, ...],
    output: tuple[int, ...],
    kernel: tuple[int, ...],
    channels_in: int,
    channels_out: int,
    groups: int,
    **facts: Any,
) -> Product:
    """Build a convolution or one of its gradients; all three have the same FLOPs.

    `image`, `output` and `kernel` are spatial sizes of the layer's input, output and window; `facts` its stride,
    its dilation, and whether channels are the last axis of the image [-].
    """
    first, second, window = channels_in // groups, channels_out // groups, prod(kernel)
    pixels_in, pixels_out = batch * prod(image), batch * prod(output)
    m, n, k = {
        "fprop": (pixels_out, second, window * first),
        "dgrad": (pixels_in, first, window * second),
        "wgrad": (window * first, second, pixels_out),
    }[variant]
    return {
        **build_product(m=m, n=n, k=k, batch=groups, variant=variant),
        "kind": OpKind.DEPTHWISE if groups > 1 and channels_in == groups else OpKind.CONV,
        "flops": 2.0 * (pixels_out * window * first * channels_out),
        "kernel": kernel,
        "channels_in": channels_in,
        "channels_out": channels_out,
        **facts,
    }


def describe_dot(equation: Equation, *, variant: str) -> Product:
    """Describe a `dot_general` as ``batch`` products of m × k by k × n: 2 m n k FLOP each."""
    contracted, batched = equation.params["dimension_numbers"]
    shapes = [get_shape(variable) for variable in equation.invars[:2]]
    k, batch = (prod(shapes[0][axis] for axis in axes[0]) for axes in (contracted, batched))
    m, n = (
        prod(size for axis, size in enumerate(shape) if axis not in (*contracted[side], *batched[side]))
        for side, shape in enumerate(shapes)
    )
    return build_product(m=m, n=n, k=k, batch=batch, variant=variant)


def describe_ragged_dot(equation: Equation, *, variant: str) -> Product:
    """Describe a grouped product (mixture of experts): each row of m × k is multiplied by one k × n matrix."""
    *_, m, k = get_shape(equation.invars[0])
    n = get_shape(equation.invars[1])[-1]
    return build_product(m=m, n=n, k=k, variant=variant)


def describe_convolution(equation: Equation, *, kernel_reversed: bool) -> Product:
    """Describe a ``conv_general_dilated`` in any layout as its layer's, by whether its kernel is reversed."""
    params, axes = equation.params, equation.params["dimension_numbers"].lhs_spec
    sides = []  # leading axis, channels and spatial sizes of both operands and the result [-]
    variables = (*equation.invars[:2], equation.outvars[0])
    for variable, order in zip(variables, params["dimension_numbers"], strict=True):
        leading, channels, *sizes = (get_shape(variable)[axis] for axis in order)
        sides.append(SimpleNamespace(leading=leading, channels=channels, sizes=tuple(sizes)))
    first, second, result = sides
    is_dilated = prod(params["lhs_dilation"]) > 1
    variant: Variant = "fprop"
    if axes[0] > axes[1]:  # batch and features are swapped: the leading axes of image and gradient are channels
        variant, image, output, kernel, batch = "wgrad", first, second, result, first.channels
        stride, dilation = params["rhs_dilation"], params["window_strides"]
        groups = max(params["feature_group_count"], params["batch_group_count"])
        if is_dilated:  # of a transposed convolution: the two operands swap roles
            image, output, stride = output, image, params["lhs_dilation"]
        channels_in, channels_out = image.leading, output.leading
    else:
        image, kernel, output, batch = first, second, result, result.leading
        stride, dilation = params["window_strides"], params["rhs_dilation"]
        groups = params["feature_group_count"] * params["batch_group_count"]
        if is_dilated or kernel_reversed:
            variant, image, output = "dgrad", output, image
            stride, groups = params["lhs_dilation"], params["feature_group_count"]
        channels_in, channels_out = image.channels, output.channels
    return build_convolution(
        variant,
        batch=batch,
        image=image.sizes,
        output=output.sizes,
        kernel=kernel.sizes,
        channels_in=channels_in,
        channels_out=channels_out,
        groups=groups,
        stride=tuple(stride),
        dilation=tuple(dilation),
        channels_last=max(axes[:2]) == len(axes) - 1,
    )


def keeps_order(shape: tuple[int, ...], permutation: tuple[int, ...]) -> bool:
    """Return whether a transposition moves only axes of length one."""
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)


def describe_window(equation: Equation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return window and stride of pooling, over the pooled axes [-]."""
    sizes = equation.params["window_dimensions"]
    strides = equation.params.get("window_strides") or (1,) * len(sizes)
    pooled = [pair for pair in zip(sizes, strides, strict=True) if max(pair) > 1]
    return tuple(size for size, _ in pooled), tuple(stride for _, stride in pooled)


def _compute_fft_flops(equation: Equation) -> float:
    """Return 5 n log2 n for each transform, the usual count of a complex radix-2 FFT [FLOP]."""
    length: int = prod(equation.params["fft_lengths"])
    batch = max(count_elements(equation.invars[0]), count_elements(equation.outvars[0])) / max(length, 1)
    return 5.0 * batch * length * log2(max(length, 2))


def _compute_sort_flops(equation: Equation) -> float:
    """Return n log2 n comparisons along the sorted (last) axis [FLOP]."""
    count = count_elements(equation.invars[0])
    length = get_shape(equation.invars[0])[equation.params.get("dimension", -1)] if count else 1
    return count * max(1.0, log2(max(length, 1)))


def _of_matrices(flops: Callable[[float, int, int], float]) -> Callable[[Equation], float]:
    """Return the FLOPs of a factorization, by those for a number of matrices of some rows and columns."""

    def compute_flops(equation: Equation) -> float:
        *batch, rows, columns = get_shape(equation.invars[0])
        return float(flops(float(prod(batch)), rows, columns))

    return compute_flops


# What the columns of the table name. FLOPs of factorizations: Golub and Van Loan, "Matrix Computations", 4th ed.,
# 4.2.5 (n³/3), 3.2.11 (2 n³/3 for a square matrix), 5.2.2 (2 n² (m - n/3)), 8.3.3 (9 n³, with eigenvectors).
# The zeros of a dilated operand (the gradient of an average) are not counted. The gradient of a maximum has one
# comparison for each element of a window and one addition for each window, of which its first operand has one
# element each. Back substitution takes n² for each right-hand side.
_FUNCTIONS: dict[str, dict[str, Callable[[Equation], Any]]] = {
    "flops": {
        "inputs": lambda equation: float(count_elements(equation.invars[0])),
        "outputs": lambda equation: float(count_elements(equation.outvars[0])),
        "updates": lambda equation: float(count_elements(equation.invars[2])),
        "windows": lambda equation: float(
            count_elements(equation.outvars[0])
            * prod(equation.params["window_dimensions"])
            / prod(equation.params.get("base_dilation") or (1,))
        ),
        "window_gradients": lambda equation: float(
            count_elements(equation.invars[0]) * (prod(equation.params["window_dimensions"]) + 1)
        ),
        "sort": _compute_sort_flops,
        "fft": _compute_fft_flops,
        "solve": lambda equation: float(count_elements(equation.invars[1]) * get_shape(equation.invars[0])[-1]),
        "cholesky": _of_matrices(lambda batch, n, _: batch * n**3 / 3.0),
        "lu": _of_matrices(lambda batch, m, n: batch * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3)),
        "qr": _of_matrices(lambda batch, m, n: batch * 2 * n**2 * (m - n / 3)),
        "eigenvectors": _of_matrices(lambda batch, m, n: 9.0 * batch * min(m, n) ** 2 * max(m, n)),
    },
    "reads": {
        # What a slice or a look-up returns, with its indices; of an update in place, all but the whole array.
        "selected": lambda equation: (
            min(nbytes(equation.invars[0]), nbytes(equation.outvars[0])),
            *map(nbytes, equation.invars[1:]),
        ),
        "all_but_first": lambda equation: (0, *map(nbytes, equation.invars[1:])),
        "scattered": lambda equation: (
            min(nbytes(equation.invars[0]), nbytes(equation.invars[2])),
            *map(nbytes, equation.invars[1:3]),
        ),
    },
    "writes": {
        "second_operand": lambda equation: nbytes(equation.invars[1]),
        "scattered": lambda equation: min(nbytes(equation.outvars[0]), nbytes(equation.invars[2])),
    },
    "is_view": {
        "same_type": lambda equation: (
            getattr(equation.invars[0].aval, "dtype", None) == getattr(equation.outvars[0].aval, "dtype", None)
        ),
        "same_size": lambda equation: count_elements(equation.invars[0]) == count_elements(equation.outvars[0]),
        "same_order": lambda equation: keeps_order(get_shape(equation.invars[0]), equation.params["permutation"]),
        "single_operand": lambda equation: len(equation.invars) == 1,
    },
}
OPERATIONS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("operations.toml").read_text(encoding="utf-8"))
SETS = {name: frozenset(names) for name, names in OPERATIONS["sets"].items()}


RULES: dict[str, Rule] = {}
for _row in OPERATIONS["jax"]:
    _columns: dict[str, Any] = {name: known[_row[name]] for name, known in _FUNCTIONS.items() if name in _row}
    RULES |= dict.fromkeys(_row["names"], Rule(kind=OpKind(_row["kind"]), role=Role(_row["role"]), **_columns))
_UNKNOWN = Rule(kind=OpKind.OTHER, role=Role.BARRIER, known=False)


def find_rule(name: str) -> Rule:
    """Return the rule of a primitive; an unknown one is a barrier whose bytes follow from its shapes."""
    return RULES.get(name, _UNKNOWN)

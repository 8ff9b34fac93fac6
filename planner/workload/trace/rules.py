"""Rules of JAX primitives: role in fusion, FLOPs and bytes, and products as dots and convolutions.

Convolutions and their gradients are counted without multiplications by inserted zeros. JAX writes all three as
``conv_general_dilated``. The gradient to the input dilates the output's gradient with zeros (``lhs_dilation``
is the layer's stride) and reverses the kernel. The gradient to the weights swaps batch and features of the image
(``lhs_spec``), dilates the gradient as a kernel (``rhs_dilation`` is the layer's stride) and turns feature groups
into batch groups: forward, input gradient and weight gradient of one layer have the same FLOPs. Zeros of SAME
padding are counted, as usual.

A transposed convolution is the input gradient of an ordinary one; it is described as that ordinary one, the
way cuDNN runs it: its forward pass is ``dgrad``, its input gradient is ``fprop``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import log2, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    """Cost rule of a primitive.

    Args:
        kind: Kind in the table of operations.
        role: Role in fusion.
        flops: Function of the FLOPs of one execution [FLOP].
        reads: Function of the bytes read from each operand, in the order of `invars` [bytes].
        writes: Function of the bytes written to all results [bytes].
        window: Spatial window and stride of a pooling primitive; None for everything else.
        is_view: Predicate for equations that move no data, unlike others of their kind.
        is_elementwise: Whether each element of the result comes from those at the same place of its operands.
        known: Whether the work is modelled; if not, bytes follow from shapes.
    """

    kind: OpKind
    role: Role
    flops: Callable[[Equation], float] = lambda equation: 0.0
    reads: Callable[[Equation], tuple[int, ...]] = lambda equation: tuple(map(nbytes, equation.invars))
    writes: Callable[[Equation], int] = lambda equation: sum(map(nbytes, equation.outvars))
    window: Callable[[Equation], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    is_view: Callable[[Equation], bool] = lambda equation: False
    is_elementwise: bool = False
    known: bool = True


Variant = Literal["fprop", "dgrad", "wgrad"]
Product = dict[str, Any]  # a contraction, as the fields of an `Op` [-, FLOP]


def build_product(*, m: int, n: int, k: int, batch: int = 1, variant: str = "") -> Product:
    """Build ``batch`` independent matrix products: 2 m n k FLOP each.

    Example:
        >>> build_product(m=2, n=3, k=4)["flops"]
        48.0
    """
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

    Args:
        variant: Forward pass, input gradient, or weight gradient.
        batch: Samples [-].
        image, output, kernel: Spatial sizes of the layer's input, output and window [-].
        channels_in, channels_out, groups: Channels and groups of the layer [-].
        facts: Stride and dilation of the window [-], and whether channels are the last axis of the image.
    """
    first, second, window = channels_in // groups, channels_out // groups, prod(kernel)
    pixels_in, pixels_out = batch * prod(image), batch * prod(output)
    m, n, k = {
        "fprop": (pixels_out, second, window * first),
        "dgrad": (pixels_in, first, window * second),
        "wgrad": (window * first, second, pixels_out),
    }[variant]
    return {
        "kind": OpKind.DEPTHWISE if groups > 1 and channels_in == groups else OpKind.CONV,
        "variant": variant,
        "flops": 2.0 * (pixels_out * window * first * channels_out),
        "m": m,
        "n": n,
        "k": k,
        "batch": groups,
        "kernel": kernel,
        "channels_in": channels_in,
        "channels_out": channels_out,
        **facts,
    }


def describe_dot(equation: Equation, *, variant: str) -> Product:
    """Describe a `dot_general` as ``batch`` products of m × k by k × n: 2 m n k FLOP each."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (get_shape(variable) for variable in equation.invars[:2])
    k = prod(left[axis] for axis in left_contracted)
    batch = prod(left[axis] for axis in left_batch)
    m = _compute_free_size(left, left_contracted, left_batch)
    n = _compute_free_size(right, right_contracted, right_batch)
    return build_product(m=m, n=n, k=k, batch=batch, variant=variant)


def describe_ragged_dot(equation: Equation, *, variant: str) -> Product:
    """Describe a grouped product (mixture of experts): each row of m × k is multiplied by one k × n matrix."""
    *_, m, k = get_shape(equation.invars[0])
    n = get_shape(equation.invars[1])[-1]
    return build_product(m=m, n=n, k=k, variant=variant)


def _compute_free_size(shape: tuple[int, ...], *taken: tuple[int, ...]) -> int:
    used = {axis for axes in taken for axis in axes}
    return prod(size for axis, size in enumerate(shape) if axis not in used)


def describe_convolution(equation: Equation, *, kernel_reversed: bool) -> Product:
    """Describe a ``conv_general_dilated`` equation in terms of its layer.

    Args:
        equation: The equation; images may be channels-first or -last, with one to three spatial axes.
        kernel_reversed: Whether its kernel operand is reversed an odd number of times.
    """
    params, axes = equation.params, equation.params["dimension_numbers"].lhs_spec
    first, second, result = _read_images(equation)
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


class _Image(NamedTuple):
    """Sizes of an operand or result: its leading axis (batch, or channels), its channels, its spatial axes [-]."""

    leading: int
    channels: int
    sizes: tuple[int, ...]


def _read_images(equation: Equation) -> list[_Image]:
    """Return both operands and the result of a convolution, by the axes of its `ConvDimensionNumbers`."""
    variables = (*equation.invars[:2], equation.outvars[0])
    found = []
    for variable, axes in zip(variables, equation.params["dimension_numbers"], strict=True):
        leading, channels, *sizes = (get_shape(variable)[axis] for axis in axes)
        found.append(_Image(leading, channels, tuple(sizes)))
    return found


# --- table of rules ------------------------------------------------------------------------------------------

ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER = "all_gather", "all_reduce", "reduce_scatter"


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


def _of_matrices(flops: Callable[[float, int, int], float]) -> Callable[[Equation], float]:
    """Return the FLOPs of a factorization, by those for a number of matrices of some rows and columns."""

    def compute_flops(equation: Equation) -> float:
        *batch, rows, columns = get_shape(equation.invars[0])
        return float(flops(float(prod(batch)), rows, columns))

    return compute_flops


# What the columns of the table name. FLOPs of factorizations: Golub and Van Loan, "Matrix Computations", 4th ed.,
# 4.2.5 (n³/3), 3.2.11 (2 n³/3 for a square matrix), 5.2.2 (2 n² (m - n/3)), 8.3.3 (9 n³, with eigenvectors).
_FUNCTIONS: dict[str, dict[str, Callable[[Equation], Any]]] = {
    "flops": {
        "inputs": lambda equation: float(count_elements(equation.invars[0])),
        "outputs": lambda equation: float(count_elements(equation.outvars[0])),
        "updates": lambda equation: float(count_elements(equation.invars[2])),
        "windows": _compute_forward_flops,
        "window_gradients": _compute_gradient_flops,
        "sort": _compute_sort_flops,
        "fft": _compute_fft_flops,
        "solve": _compute_solve_flops,
        "cholesky": _of_matrices(lambda batch, n, _: batch * n**3 / 3.0),
        "lu": _of_matrices(lambda batch, m, n: batch * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3)),
        "qr": _of_matrices(lambda batch, m, n: batch * 2 * n**2 * (m - n / 3)),
        "eigenvectors": _of_matrices(lambda batch, m, n: 9.0 * batch * min(m, n) ** 2 * max(m, n)),
    },
    "reads": {
        "selected": _read_selected,
        "all_but_first": _read_all_but_first,
        "scattered": _compute_scatter_reads,
    },
    "writes": {
        "second_operand": lambda equation: nbytes(equation.invars[1]),
        "scattered": _compute_scatter_writes,
    },
    "window": {"pooled": _get_window},
    "is_view": {
        "same_type": _has_same_type,
        "same_size": lambda equation: count_elements(equation.invars[0]) == count_elements(equation.outvars[0]),
        "same_order": lambda equation: keeps_order(get_shape(equation.invars[0]), equation.params["permutation"]),
        "single_operand": lambda equation: len(equation.invars) == 1,
    },
}
OPERATIONS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("operations.toml").read_text(encoding="utf-8"))


def _read_rules() -> Iterator[tuple[str, Rule]]:
    for row in OPERATIONS["jax"]:
        facts: dict[str, Any] = {
            column: functions[row[column]] for column, functions in _FUNCTIONS.items() if column in row
        }
        facts["is_elementwise"] = row.get("is_elementwise", False)
        rule = Rule(kind=OpKind(row["kind"]), role=Role(row["role"]), **facts)
        yield from ((name, rule) for name in row["names"])


RULES = dict(_read_rules())
_UNKNOWN = Rule(kind=OpKind.OTHER, role=Role.BARRIER, known=False)


def find_rule(name: str) -> Rule:
    """Return the rule of a primitive; an unknown one is a barrier whose bytes follow from its shapes."""
    return RULES.get(name, _UNKNOWN)

"""Cost rule of a primitive, and size functions for rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any, Literal

from ...ops import OpKind

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
        known: Whether the work is modelled; if not, bytes follow from shapes.
    """

    kind: OpKind
    role: Role
    flops: Callable[[Equation], float] = lambda equation: 0.0
    reads: Callable[[Equation], tuple[int, ...]] = lambda equation: tuple(map(nbytes, equation.invars))
    writes: Callable[[Equation], int] = lambda equation: sum(map(nbytes, equation.outvars))
    window: Callable[[Equation], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    is_view: Callable[[Equation], bool] = lambda equation: False
    known: bool = True


Variant = Literal["fprop", "dgrad", "wgrad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A contraction, with the fields of `Op` [-, FLOP]."""

    kind: OpKind
    variant: str = ""
    flops: float
    m: int
    n: int
    k: int
    batch: int = 1
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    channels_in: int = 0
    channels_out: int = 0
    channels_last: bool = True

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of an `Op` with this contraction."""
        return {name: getattr(self, name) for name in self.__slots__}


def build_product(*, m: int, n: int, k: int, batch: int = 1, variant: str = "") -> Contraction:
    """Build ``batch`` independent matrix products: 2 m n k FLOP each.

    Example:
        >>> build_product(m=2, n=3, k=4).flops
        48.0
    """
    flops = 2.0 * batch * m * n * k
    return Contraction(kind=OpKind.DOT, variant=variant, flops=flops, m=m, n=n, k=k, batch=batch)


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
) -> Contraction:
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
    depthwise = groups > 1 and channels_in == groups
    return Contraction(
        kind=OpKind.DEPTHWISE if depthwise else OpKind.CONV,
        variant=variant,
        flops=2.0 * (pixels_out * window * first * channels_out),
        m=m,
        n=n,
        k=k,
        batch=groups,
        kernel=kernel,
        channels_in=channels_in,
        channels_out=channels_out,
        **facts,
    )


def describe_dot(equation: Equation, *, variant: str) -> Contraction:
    """Describe a `dot_general` as ``batch`` products of m × k by k × n: 2 m n k FLOP each."""
    (left_contracted, right_contracted), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (get_shape(variable) for variable in equation.invars[:2])
    k = prod(left[axis] for axis in left_contracted)
    batch = prod(left[axis] for axis in left_batch)
    m = _compute_free_size(left, left_contracted, left_batch)
    n = _compute_free_size(right, right_contracted, right_batch)
    return build_product(m=m, n=n, k=k, batch=batch, variant=variant)


def describe_ragged_dot(equation: Equation, *, variant: str) -> Contraction:
    """Describe a grouped product (mixture of experts): each row of m × k is multiplied by one k × n matrix."""
    *_, m, k = get_shape(equation.invars[0])
    n = get_shape(equation.invars[1])[-1]
    return build_product(m=m, n=n, k=k, variant=variant)


def _compute_free_size(shape: tuple[int, ...], *taken: tuple[int, ...]) -> int:
    used = {axis for axes in taken for axis in axes}
    return prod(size for axis, size in enumerate(shape) if axis not in used)

"""Convolutions and their gradients, counted without multiplications by inserted zeros.

JAX writes all three as ``conv_general_dilated``. The gradient to the input dilates the output's gradient
with zeros (``lhs_dilation`` is the layer's stride) and reverses the kernel. The gradient to the weights swaps
batch and features of the image (``lhs_spec``), dilates the gradient as a kernel (``rhs_dilation`` is the
layer's stride) and turns feature groups into batch groups. None of the zeros are counted: forward, input
gradient and weight gradient of one layer have the same FLOPs. Zeros of SAME padding are counted, as usual.

A transposed convolution is the input gradient of an ordinary one; it is described as that ordinary one, the
way cuDNN runs it: its forward pass is ``dgrad``, its input gradient is ``fprop``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...ops import OpKind
from .contraction import Contraction
from .cost_rule import Equation, get_shape


def describe_convolution(equation: Equation, *, kernel_reversed: bool) -> Contraction:
    """Describe a ``conv_general_dilated`` equation in terms of its layer.

    Args:
        equation: The equation; images may be channels-first or -last, with one to three spatial axes.
        kernel_reversed: Whether its kernel operand is reversed an odd number of times.
    """
    specs = equation.params["dimension_numbers"]
    if specs.lhs_spec[0] > specs.lhs_spec[1]:
        return _describe_weight_gradient(equation, specs)
    dilated = prod(equation.params["lhs_dilation"]) > 1
    if dilated or kernel_reversed:
        return _describe_input_gradient(equation, specs)
    return _describe_forward(equation, specs)


def _describe_forward(equation: Equation, specs: Any) -> Contraction:
    image, kernel, result = _get_shapes(equation)
    groups = equation.params["feature_group_count"] * equation.params["batch_group_count"]
    channels_in = image[specs.lhs_spec[1]]
    channels_out = result[specs.out_spec[1]]
    window = _select_sizes(kernel, specs.rhs_spec[2:])
    rows = result[specs.out_spec[0]] * prod(_select_sizes(result, specs.out_spec[2:]))
    k = prod(window) * channels_in // groups
    return _build_contraction(
        "fprop",
        m=rows,
        n=channels_out // groups,
        k=k,
        products=rows * channels_out * k,
        groups=groups,
        kernel=window,
        stride=tuple(equation.params["window_strides"]),
        dilation=tuple(equation.params["rhs_dilation"]),
        channels_in=channels_in,
        channels_out=channels_out,
        channels_last=specs.lhs_spec[1] == len(image) - 1,
    )


def _describe_input_gradient(equation: Equation, specs: Any) -> Contraction:
    gradient, kernel, result = _get_shapes(equation)
    groups = equation.params["feature_group_count"]
    channels_in = result[specs.out_spec[1]]
    channels_out = gradient[specs.lhs_spec[1]]
    window = _select_sizes(kernel, specs.rhs_spec[2:])
    batch = result[specs.out_spec[0]]
    pixels_out = batch * prod(_select_sizes(gradient, specs.lhs_spec[2:]))
    return _build_contraction(
        "dgrad",
        m=batch * prod(_select_sizes(result, specs.out_spec[2:])),
        n=channels_in // groups,
        k=prod(window) * channels_out // groups,
        products=pixels_out * prod(window) * channels_out * channels_in // groups,
        groups=groups,
        kernel=window,
        stride=tuple(equation.params["lhs_dilation"]),
        dilation=tuple(equation.params["rhs_dilation"]),
        channels_in=channels_in,
        channels_out=channels_out,
        channels_last=specs.lhs_spec[1] == len(gradient) - 1,
    )


def _describe_weight_gradient(equation: Equation, specs: Any) -> Contraction:
    image, gradient, result = _get_shapes(equation)
    groups = max(equation.params["feature_group_count"], equation.params["batch_group_count"])
    batch = image[specs.lhs_spec[1]]
    channels_in, channels_out = image[specs.lhs_spec[0]], gradient[specs.rhs_spec[0]]
    pixels, stride = _select_sizes(gradient, specs.rhs_spec[2:]), tuple(equation.params["rhs_dilation"])
    if prod(equation.params["lhs_dilation"]) > 1:  # of a transposed convolution: the two operands swap roles
        channels_in, channels_out = channels_out, channels_in
        pixels, stride = _select_sizes(image, specs.lhs_spec[2:]), tuple(equation.params["lhs_dilation"])
    window = _select_sizes(result, specs.out_spec[2:])
    m, n, k = prod(window) * channels_in // groups, channels_out // groups, batch * prod(pixels)
    return _build_contraction(
        "wgrad",
        m=m,
        n=n,
        k=k,
        products=m * channels_out * k,
        groups=groups,
        kernel=window,
        stride=stride,
        dilation=tuple(equation.params["window_strides"]),
        channels_in=channels_in,
        channels_out=channels_out,
        channels_last=specs.lhs_spec[0] == len(image) - 1,
    )


def _build_contraction(
    variant: str, *, products: int, groups: int, channels_in: int, **facts: Any
) -> Contraction:
    depthwise = groups > 1 and channels_in == groups
    return Contraction(
        kind=OpKind.DEPTHWISE if depthwise else OpKind.CONV,
        variant=variant,
        flops=2.0 * products,
        batch=groups,
        channels_in=channels_in,
        **facts,
    )


def _get_shapes(equation: Equation) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    first, second = (get_shape(variable) for variable in equation.invars[:2])
    return first, second, get_shape(equation.outvars[0])


def _select_sizes(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in axes)

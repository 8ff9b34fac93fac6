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
from typing import NamedTuple

from .cost_rule import Contraction, Equation, Variant, build_convolution, get_shape


def describe_convolution(equation: Equation, *, kernel_reversed: bool) -> Contraction:
    """Describe a ``conv_general_dilated`` equation in terms of its layer.

    Args:
        equation: The equation; images may be channels-first or -last, with one to three spatial axes.
        kernel_reversed: Whether its kernel operand is reversed an odd number of times.
    """
    params, specs = equation.params, equation.params["dimension_numbers"]
    if specs.lhs_spec[0] > specs.lhs_spec[1]:
        return _describe_weight_gradient(equation)
    source, window, target = _read_images(equation)
    batch = target.leading
    variant: Variant = "fprop"
    stride, groups = params["window_strides"], params["feature_group_count"] * params["batch_group_count"]
    if prod(params["lhs_dilation"]) > 1 or kernel_reversed:
        variant, source, target = "dgrad", target, source
        stride, groups = params["lhs_dilation"], params["feature_group_count"]
    return build_convolution(
        variant,
        batch=batch,
        image=source.sizes,
        output=target.sizes,
        kernel=window.sizes,
        channels_in=source.channels,
        channels_out=target.channels,
        groups=groups,
        stride=tuple(stride),
        dilation=tuple(params["rhs_dilation"]),
        channels_last=specs.lhs_spec[1] == len(specs.lhs_spec) - 1,
    )


def _describe_weight_gradient(equation: Equation) -> Contraction:
    params, specs = equation.params, equation.params["dimension_numbers"]
    # Batch and features of the image are swapped: its leading axis, and that of the gradient, are channels.
    image, gradient, window = _read_images(equation)
    batch, stride = image.channels, params["rhs_dilation"]
    if prod(params["lhs_dilation"]) > 1:  # of a transposed convolution: the two operands swap roles
        image, gradient, stride = gradient, image, params["lhs_dilation"]
    return build_convolution(
        "wgrad",
        batch=batch,
        image=image.sizes,
        output=gradient.sizes,
        kernel=window.sizes,
        channels_in=image.leading,
        channels_out=gradient.leading,
        groups=max(params["feature_group_count"], params["batch_group_count"]),
        stride=tuple(stride),
        dilation=tuple(params["window_strides"]),
        channels_last=specs.lhs_spec[0] == len(specs.lhs_spec) - 1,
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

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

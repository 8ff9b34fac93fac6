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
    first, window, result = _get_shapes(equation)
    source, target = _Image.read(first, specs.lhs_spec), _Image.read(result, specs.out_spec)
    variant: Variant = "fprop"
    stride, groups = params["window_strides"], params["feature_group_count"] * params["batch_group_count"]
    if prod(params["lhs_dilation"]) > 1 or kernel_reversed:
        variant, source, target = "dgrad", target, source
        stride, groups = params["lhs_dilation"], params["feature_group_count"]
    return build_convolution(
        variant,
        batch=result[specs.out_spec[0]],
        image=source.sizes,
        output=target.sizes,
        kernel=_Image.read(window, specs.rhs_spec).sizes,
        channels_in=source.channels,
        channels_out=target.channels,
        groups=groups,
        stride=tuple(stride),
        dilation=tuple(params["rhs_dilation"]),
        channels_last=specs.lhs_spec[1] == len(first) - 1,
    )


def _describe_weight_gradient(equation: Equation) -> Contraction:
    params, specs = equation.params, equation.params["dimension_numbers"]
    first, second, result = _get_shapes(equation)
    # Batch and features of the image are swapped: its leading axis, and that of the gradient, are channels.
    image, gradient = _Image.read(first, specs.lhs_spec), _Image.read(second, specs.rhs_spec)
    batch, stride = image.channels, params["rhs_dilation"]
    if prod(params["lhs_dilation"]) > 1:  # of a transposed convolution: the two operands swap roles
        image, gradient, stride = gradient, image, params["lhs_dilation"]
    return build_convolution(
        "wgrad",
        batch=batch,
        image=image.sizes,
        output=gradient.sizes,
        kernel=_Image.read(result, specs.out_spec).sizes,
        channels_in=image.leading,
        channels_out=gradient.leading,
        groups=max(params["feature_group_count"], params["batch_group_count"]),
        stride=tuple(stride),
        dilation=tuple(params["window_strides"]),
        channels_last=specs.lhs_spec[0] == len(first) - 1,
    )


class _Image(NamedTuple):
    """Sizes of an operand or result: its leading axis (batch, or channels), its channels, its spatial axes [-]."""

    leading: int
    channels: int
    sizes: tuple[int, ...]

    @staticmethod
    def read(shape: tuple[int, ...], spec: tuple[int, ...]) -> _Image:
        """Return the sizes by the axes of a `ConvDimensionNumbers`."""
        leading, channels, *sizes = (shape[axis] for axis in spec)
        return _Image(leading, channels, tuple(sizes))


def _get_shapes(equation: Equation) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    first, second = (get_shape(variable) for variable in equation.invars[:2])
    return first, second, get_shape(equation.outvars[0])

"""Rows of a step from tracers of other backends: one operation, one kernel, no fusion."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from ...ops import Op, OpKind

Variant = Literal["fprop", "dgrad", "wgrad"]


def build_unfused_op(*, bytes_read: float, bytes_written: float, number: int, **facts: Any) -> Op:
    """Build a row that is a separate kernel in every execution mode.

    Args:
        bytes_read, bytes_written: Bytes of one execution [bytes].
        number: Kernel number [-].
        facts: Other fields of `Op`.
    """
    return Op(
        layer="",
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        layer_bytes_read=bytes_read,
        layer_bytes_written=bytes_written,
        fused_bytes_read=bytes_read,
        fused_bytes_written=bytes_written,
        layer_group=number,
        fused_group=number,
        **facts,
    )


def build_product_fields(*, m: int, n: int, k: int, batch: int = 1) -> dict[str, Any]:
    """Return the fields of ``batch`` independent matrix products: 2 m n k FLOP each.

    Example:
        >>> build_product_fields(m=2, n=3, k=4)["flops"]
        48.0
    """
    return {"kind": OpKind.DOT, "m": m, "n": n, "k": k, "batch": batch, "flops": 2.0 * batch * m * n * k}


def build_convolution_fields(
    variant: Variant,
    *,
    batch: int,
    image: tuple[int, ...],
    output: tuple[int, ...],
    kernel: tuple[int, ...],
    channels_in: int,
    channels_out: int,
    groups: int,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    channels_last: bool,
) -> dict[str, Any]:
    """Return the fields of a convolution or one of its gradients; all three have the same FLOPs.

    Args:
        variant: Forward pass, input gradient, or weight gradient.
        batch: Samples [-].
        image, output, kernel: Spatial sizes of the layer's input, output and window [-].
        channels_in, channels_out, groups: Channels and groups of the layer [-].
        stride, dilation: Stride and dilation of the window [-].
        channels_last: Memory layout of the image.
    """
    first, second, window = channels_in // groups, channels_out // groups, prod(kernel)
    pixels_in, pixels_out = batch * prod(image), batch * prod(output)
    m, n, k = {
        "fprop": (pixels_out, second, window * first),
        "dgrad": (pixels_in, first, window * second),
        "wgrad": (window * first, second, pixels_out),
    }[variant]
    depthwise = groups > 1 and channels_in == groups
    return {
        "kind": OpKind.DEPTHWISE if depthwise else OpKind.CONV,
        "variant": variant,
        "m": m,
        "n": n,
        "k": k,
        "batch": groups,
        "flops": 2.0 * pixels_out * window * first * channels_out,
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "channels_in": channels_in,
        "channels_out": channels_out,
        "channels_last": channels_last,
    }

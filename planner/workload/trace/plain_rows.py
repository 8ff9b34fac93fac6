"""Rows of a step that another tracer than JAX's found: one operation, one kernel, nothing fused."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from ..ops import Op, OpKind

__all__ = ["Variant", "convolution_facts", "plain_row", "product_facts"]

Variant = Literal["fprop", "dgrad", "wgrad"]


def plain_row(*, bytes_read: float, bytes_written: float, number: int, **facts: Any) -> Op:
    """Return a row that is a kernel of its own in every way of running.

    Args:
        bytes_read, bytes_written: Of one execution [bytes].
        number: Of the kernel [-].
        facts: Everything else that an `Op` takes.
    """
    return Op(
        layer="", bytes_read=bytes_read, bytes_written=bytes_written, layer_bytes_read=bytes_read,
        layer_bytes_written=bytes_written, fused_bytes_read=bytes_read, fused_bytes_written=bytes_written,
        layer_group=number, fused_group=number, **facts,
    )  # fmt: skip


def product_facts(*, m: int, n: int, k: int, batch: int = 1) -> dict[str, Any]:
    """Return what a row says of ``batch`` independent products of matrices; a multiply-add is 2 FLOP.

    Example:
        >>> product_facts(m=2, n=3, k=4)["flops"]
        48.0
    """
    return {"kind": OpKind.DOT, "m": m, "n": n, "k": k, "batch": batch, "flops": 2.0 * batch * m * n * k}


def convolution_facts(
    variant: Variant, *, batch: int, image: tuple[int, ...], output: tuple[int, ...], kernel: tuple[int, ...],
    channels_in: int, channels_out: int, groups: int, stride: tuple[int, ...], dilation: tuple[int, ...],
    channels_last: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return what a row says of a layer's convolution or of one of its gradients; all three have the same FLOPs.

    Args:
        variant: The forward pass, the gradient to the image, or that to the weights.
        batch: Samples [-].
        image, output, kernel: Spatial sizes of the layer's input, output and window [-].
        channels_in, channels_out, groups: Of the layer [-].
        stride, dilation: Of the window [-].
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
        "kind": OpKind.DEPTHWISE if depthwise else OpKind.CONV, "variant": variant, "m": m, "n": n, "k": k,
        "batch": groups, "flops": 2.0 * pixels_out * window * first * channels_out, "kernel": kernel,
        "stride": stride, "dilation": dilation, "channels_in": channels_in, "channels_out": channels_out,
        "channels_last": channels_last,
    }  # fmt: skip

"""EfficientNet v1, v2 and RegNetY behind the published measurements."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import layers
from vision_blocks import conv_bn, depthwise_bn, finish, head, image, squeeze_excite

__all__ = ["efficientnet", "efficientnet_v2", "mbconv", "regnety"]

Tensor = Any
Row = tuple[int, ...]
B0_ROWS = (
    (3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4), (3, 1, 6, 320, 1),
)  # kernel, strides, expansion, channels, depth  # fmt: skip
V1_SCALES = {"b0": (1.0, 1.0), "b1": (1.0, 1.1), "b2": (1.1, 1.2), "b3": (1.2, 1.4), "b4": (1.4, 1.8),
             "b5": (1.6, 2.2), "b6": (1.8, 2.6), "b7": (2.0, 3.1)}  # width, depth  # fmt: skip


def _divisible(channels: float, divisor: int = 8) -> int:
    """Round to a multiple, never more than 10 % down."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def _nearest(channels: float) -> int:
    """Round to a multiple of 8, as EfficientNetV2 does: down by more than 10 %, too."""
    return max(8, int(channels + 4) // 8 * 8)


def _residual(x: Tensor, y: Tensor, strides: int) -> Tensor:
    return layers.Add()([x, y]) if strides == 1 and x.shape[-1] == y.shape[-1] else y


def mbconv(
    x: Tensor, kernel: int, strides: int, expansion: int, channels: int, *, wide_se: bool = False
) -> Tensor:
    """Return a mobile inverted bottleneck with squeeze-and-excitation, SiLU.

    Args:
        x: Input.
        kernel: Of the depthwise convolution.
        strides: Of the depthwise convolution.
        expansion: Hidden channels an input channel.
        channels: Of the output.
        wide_se: Squeeze to a quarter of the hidden channels, not of the input's.
    """
    hidden = x.shape[-1] * expansion
    y = x if expansion == 1 else conv_bn(x, hidden, 1, activation="silu")
    y = depthwise_bn(y, kernel, strides, activation="silu")
    y = squeeze_excite(y, max(1, (hidden if wide_se else x.shape[-1]) // 4), activation="silu")
    return _residual(x, conv_bn(y, channels, 1, activation=None), strides)


def efficientnet(
    image_size: int = 224,
    classes: int = 1000,
    optimizer: str = "rmsprop",
    variant: str = "b0",
    wide_se: bool = False,
) -> keras.Model:
    """EfficientNet B0 to B7 (Tan and Le, 2019, arXiv:1905.11946); `wide_se` is NVIDIA's widese variant."""
    width, depth = V1_SCALES[variant]
    inputs = image(image_size)
    x = conv_bn(inputs, _divisible(32 * width), 3, 2, activation="silu")
    for kernel, strides, expansion, channels, repeats in B0_ROWS:
        for i in range(math.ceil(repeats * depth)):
            x = mbconv(
                x, kernel, strides if i == 0 else 1, expansion, _divisible(channels * width), wide_se=wide_se
            )
    x = conv_bn(x, _divisible(1280 * width), 1, activation="silu")
    name = f"efficientnet_{variant}" + "_widese" * wide_se
    return finish(inputs, head(x, classes, dropout=0.2), name, optimizer)


def _fused_mbconv(x: Tensor, strides: int, expansion: int, channels: int) -> Tensor:
    if expansion == 1:
        return _residual(x, conv_bn(x, channels, 3, strides, activation="silu"), strides)
    y = conv_bn(x, x.shape[-1] * expansion, 3, strides, activation="silu")
    return _residual(x, conv_bn(y, channels, 1, activation=None), strides)


# Fused, strides, expansion, channels, depth; the stem has the channels of the first row, but for B0 to B3.
V2_BASE = (
    (1, 1, 1, 16, 1),
    (1, 2, 4, 32, 2),
    (1, 2, 4, 48, 2),
    (0, 2, 4, 96, 3),
    (0, 1, 6, 112, 5),
    (0, 2, 6, 192, 8),
)
V2_ROWS = {
    "s": ((1, 1, 1, 24, 2), (1, 2, 4, 48, 4), (1, 2, 4, 64, 4), (0, 2, 4, 128, 6), (0, 1, 6, 160, 9),
          (0, 2, 6, 256, 15)),
    "m": ((1, 1, 1, 24, 3), (1, 2, 4, 48, 5), (1, 2, 4, 80, 5), (0, 2, 4, 160, 7), (0, 1, 6, 176, 14),
          (0, 2, 6, 304, 18), (0, 1, 6, 512, 5)),
    "l": ((1, 1, 1, 32, 4), (1, 2, 4, 64, 7), (1, 2, 4, 96, 7), (0, 2, 4, 192, 10), (0, 1, 6, 224, 19),
          (0, 2, 6, 384, 25), (0, 1, 6, 640, 7)),
}  # fmt: skip
V2_SCALES = {"b0": (1.0, 1.0), "b1": (1.0, 1.1), "b2": (1.1, 1.2), "b3": (1.2, 1.4)}


def _v2_rows(variant: str) -> tuple[int, tuple[Row, ...], int]:
    """Return the stem's channels, the rows and the features of a variant."""
    if variant in V2_ROWS:
        return V2_ROWS[variant][0][3], V2_ROWS[variant], 1280
    width, depth = V2_SCALES[variant]
    rows = tuple((*row[:3], _nearest(row[3] * width), math.ceil(row[4] * depth)) for row in V2_BASE)
    return _nearest(32 * width), rows, _nearest(1280 * width)


def efficientnet_v2(
    image_size: int = 300, classes: int = 1000, optimizer: str = "rmsprop", variant: str = "s"
) -> keras.Model:
    """EfficientNetV2 B0 to B3, S, M, L (Tan and Le, 2021, arXiv:2104.00298)."""
    stem, rows, features = _v2_rows(variant)
    inputs = image(image_size)
    x = conv_bn(inputs, stem, 3, 2, activation="silu")
    for fused, strides, expansion, channels, depth in rows:
        for i in range(depth):
            step = strides if i == 0 else 1
            x = _fused_mbconv(x, step, expansion, channels) if fused else mbconv(x, 3, step, expansion, channels)
    x = conv_bn(x, features, 1, activation="silu")
    return finish(inputs, head(x, classes, dropout=0.2), f"efficientnet_v2_{variant}", optimizer)


REGNETY = {  # group width, then channels and depth of the four stages
    "004": (8, (48, 104, 208, 440), (1, 3, 6, 6)),
    "008": (16, (64, 128, 320, 768), (1, 3, 8, 2)),
    "016": (24, (48, 120, 336, 888), (2, 6, 17, 2)),
    "032": (24, (72, 216, 576, 1512), (2, 5, 13, 1)),
    "040": (64, (128, 192, 512, 1088), (2, 6, 12, 2)),
    "080": (56, (168, 448, 896, 2016), (2, 4, 10, 1)),
}


def _regnet_block(x: Tensor, channels: int, group_width: int, strides: int) -> Tensor:
    reduced = round(x.shape[-1] / 4)
    y = conv_bn(x, channels, 1)
    y = conv_bn(y, channels, 3, strides, groups=channels // group_width)
    y = conv_bn(squeeze_excite(y, reduced), channels, 1, activation=None)
    same = strides == 1 and x.shape[-1] == channels
    shortcut = x if same else conv_bn(x, channels, 1, strides, activation=None)
    return layers.ReLU()(layers.Add()([y, shortcut]))


def regnety(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", variant: str = "040"
) -> keras.Model:
    """RegNetY (Radosavovic et al., 2020, arXiv:2003.13678); the variant is in 100 MFLOPs: 004 to 080."""
    group_width, widths, depths = REGNETY[variant]
    inputs = image(image_size)
    x = conv_bn(inputs, 32, 3, 2)
    for channels, depth in zip(widths, depths, strict=True):
        for i in range(depth):
            x = _regnet_block(x, channels, group_width, 2 if i == 0 else 1)
    return finish(inputs, head(x, classes), f"regnety_{variant}", optimizer)

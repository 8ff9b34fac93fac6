"""Segmentation networks behind the published measurements: nnU-Net in two and three dimensions, V-Net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops
from vision_blocks import make_optimizer

__all__ = ["dice_and_cross_entropy", "nnunet_2d", "nnunet_3d", "vnet"]

Tensor = Any


def dice_and_cross_entropy(truth: Tensor, probabilities: Tensor) -> Tensor:
    """Return the sum of soft Dice loss and cross-entropy over positions, both with class probabilities."""
    axes = tuple(range(1, len(truth.shape) - 1))
    overlap = ops.sum(truth * probabilities, axis=axes)
    total = ops.sum(truth, axis=axes) + ops.sum(probabilities, axis=axes)
    dice = 1.0 - ops.mean((2.0 * overlap + 1e-5) / (total + 1e-5))
    return dice + ops.mean(keras.losses.categorical_crossentropy(truth, probabilities))


def _segmenter(inputs: Tensor, outputs: Tensor, name: str, optimizer: str) -> keras.Model:
    model = keras.Model(inputs, outputs, name=name)
    model.compile(optimizer=make_optimizer(optimizer), loss=dice_and_cross_entropy)
    return model


def _instance_conv(x: Tensor, channels: int, kernel: int, strides: int) -> Tensor:
    convolution = layers.Conv3D if len(x.shape) == 5 else layers.Conv2D
    x = convolution(channels, kernel, strides=strides, padding="same", use_bias=False)(x)
    return layers.LeakyReLU(0.01)(layers.GroupNormalization(groups=-1)(x))


def _instance_block(x: Tensor, channels: int, strides: int = 1) -> Tensor:
    return _instance_conv(_instance_conv(x, channels, 3, strides), channels, 3, 1)


def _nnunet(name: str, inputs: Tensor, channels: Sequence[int], classes: int, optimizer: str) -> keras.Model:
    volume = len(inputs.shape) == 5
    x, skips = inputs, []
    for i, width in enumerate(channels):
        x = _instance_block(x, width, 2 if i else 1)
        skips.append(x)
    for width, skip in zip(channels[-2::-1], skips[-2::-1], strict=True):
        up = layers.Conv3DTranspose if volume else layers.Conv2DTranspose
        x = layers.Concatenate()([up(width, 2, strides=2, padding="same")(x), skip])
        x = _instance_block(x, width)
    x = (layers.Conv3D if volume else layers.Conv2D)(classes, 1)(x)
    return _segmenter(inputs, layers.Softmax()(x), name, optimizer)


def nnunet_2d(
    height: int = 192, width: int = 160, channels: int = 4, classes: int = 4, optimizer: str = "adam"
) -> keras.Model:
    """2D U-Net of nnU-Net (Isensee et al., 2018, arXiv:1809.10486) as NVIDIA builds it for brain tumours.

    Instance normalization, leaky ReLU, five strided steps from 32 to 512 channels, no deep supervision. The
    size is that of Task01 in NVIDIA's configuration, which its benchmark script uses by default.
    """
    inputs = keras.Input((height, width, channels))
    return _nnunet("nnunet_2d", inputs, (32, 64, 128, 256, 512, 512), classes, optimizer)


def nnunet_3d(side: int = 128, channels: int = 4, classes: int = 4, optimizer: str = "adam") -> keras.Model:
    """3D U-Net of nnU-Net (Isensee et al., 2018), NVIDIA's for brain tumours: 32 to 320 channels."""
    inputs = keras.Input((side, side, side, channels))
    return _nnunet("nnunet_3d", inputs, (32, 64, 128, 256, 320, 320), classes, optimizer)


def _norm_conv(x: Tensor, channels: int, kernel: int, strides: int = 1) -> Tensor:
    x = layers.Conv3D(channels, kernel, strides=strides, padding="same")(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def _residual_volume(x: Tensor) -> Tensor:
    y = x
    for _ in range(3):
        y = _norm_conv(y, x.shape[-1], 3)
    return layers.Add()([x, y])


def _up(x: Tensor, channels: int) -> Tensor:
    x = layers.Conv3DTranspose(channels, 2, strides=2, padding="same")(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def vnet(side: int = 32, classes: int = 3, optimizer: str = "rmsprop") -> keras.Model:
    """V-Net (Milletari et al., 2016, arXiv:1606.04797) as NVIDIA builds it for the hippocampus: 3x3x3."""
    inputs = keras.Input((side, side, side, 1))
    x = layers.Add()([_norm_conv(inputs, 16, 3), layers.Concatenate()([inputs] * 16)])
    skips = [x]
    for _ in range(3):
        x = _residual_volume(_norm_conv(x, 2 * x.shape[-1], 2, 2))
        skips.append(x)
    for skip in skips[2:0:-1]:
        x = _residual_volume(layers.Concatenate()([_up(x, skip.shape[-1]), skip]))
    x = layers.Conv3D(classes, 3, padding="same")(_up(x, 16))
    return _segmenter(inputs, layers.Softmax()(x), "vnet", optimizer)

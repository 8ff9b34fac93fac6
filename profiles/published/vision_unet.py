"""Segmentation networks behind the published measurements: U-Net, nnU-Net, V-Net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops
from vision_blocks import make_optimizer

__all__ = [
    "dice_and_binary_cross_entropy", "dice_and_cross_entropy", "nnunet_2d", "nnunet_3d", "nnunet_3d_medical",
    "unet_industrial", "unet_medical", "vnet",
]  # fmt: skip

Tensor = Any


def dice_and_cross_entropy(truth: Tensor, probabilities: Tensor) -> Tensor:
    """Return the sum of soft Dice loss and cross-entropy over positions, both with class probabilities."""
    axes = tuple(range(1, len(truth.shape) - 1))
    overlap = ops.sum(truth * probabilities, axis=axes)
    total = ops.sum(truth, axis=axes) + ops.sum(probabilities, axis=axes)
    dice = 1.0 - ops.mean((2.0 * overlap + 1e-5) / (total + 1e-5))
    return dice + ops.mean(keras.losses.categorical_crossentropy(truth, probabilities))


def dice_and_binary_cross_entropy(truth: Tensor, probabilities: Tensor) -> Tensor:
    """Return the sum of soft Dice loss and cross-entropy over positions of one class."""
    overlap, total = ops.sum(truth * probabilities), ops.sum(truth) + ops.sum(probabilities)
    cross_entropy = ops.mean(keras.losses.binary_crossentropy(truth, probabilities))
    return 1.0 - (2.0 * overlap + 1e-5) / (total + 1e-5) + cross_entropy


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


def _nnunet(
    name: str, inputs: Tensor, channels: Sequence[int], classes: int, optimizer: str, *, last_kernel: int = 1
) -> keras.Model:
    volume = len(inputs.shape) == 5
    x, skips = inputs, []
    for i, width in enumerate(channels):
        x = _instance_block(x, width, 2 if i else 1)
        skips.append(x)
    for width, skip in zip(channels[-2::-1], skips[-2::-1], strict=True):
        up = layers.Conv3DTranspose if volume else layers.Conv2DTranspose
        x = layers.Concatenate()([up(width, 2, strides=2, padding="same")(x), skip])
        x = _instance_block(x, width)
    x = (layers.Conv3D if volume else layers.Conv2D)(classes, last_kernel, padding="same")(x)
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


def nnunet_3d_medical(
    side: int = 128, channels: int = 4, classes: int = 4, optimizer: str = "adam"
) -> keras.Model:
    """3D U-Net of NVIDIA's for TensorFlow 1: that of nnU-Net with a last kernel of 3x3x3.

    TensorFlow/Segmentation/UNet_3D_Medical/model/unet3d.py of NVIDIA/DeepLearningExamples, with the instance
    normalization that model_fn.py takes by default.
    """
    inputs = keras.Input((side, side, side, channels))
    widths = (32, 64, 128, 256, 320, 320)
    return _nnunet("nnunet_3d_medical", inputs, widths, classes, optimizer, last_kernel=3)


def _pair(x: Tensor, channels: int, padding: str, second: int | None = None) -> Tensor:
    x = layers.Conv2D(channels, 3, padding=padding, activation="relu")(x)
    return layers.Conv2D(second or channels, 3, padding=padding, activation="relu")(x)


def _join(x: Tensor, skip: Tensor) -> Tensor:
    """Concatenate with the middle of what comes from the other side."""
    cut = (skip.shape[1] - x.shape[1]) // 2
    return layers.Concatenate()([x, layers.Cropping2D(cut)(skip) if cut else skip])


def unet_medical(image_size: int = 572, classes: int = 2, optimizer: str = "adam") -> keras.Model:
    """U-Net (Ronneberger et al., 2015, arXiv:1505.04597) as NVIDIA builds it: unpadded, transposed 3x3.

    TensorFlow/Segmentation/UNet_Medical/model/layers.py of NVIDIA/DeepLearningExamples, and the same under
    TensorFlow2.
    """
    inputs = x = keras.Input((image_size, image_size, 1))
    skips = []
    for width in (64, 128, 256, 512):
        skips.append(_pair(x, width, "valid"))
        x = layers.MaxPooling2D(2)(skips[-1])
    x = layers.Dropout(0.5)(_pair(x, 1024, "valid"))
    for width in (512, 256, 128, 64):
        x = layers.Conv2DTranspose(width, 3, strides=2, padding="same", activation="relu")(x)
        x = _pair(_join(x, skips.pop()), width, "valid")
    return _segmenter(inputs, layers.Softmax()(layers.Conv2D(classes, 1)(x)), "unet_medical", optimizer)


def unet_industrial(image_size: int = 512, optimizer: str = "rmsprop") -> keras.Model:
    """NVIDIA's `tinyUNet` for defects on surfaces: nearest pixels and 2x2 convolutions upwards.

    TensorFlow/Segmentation/UNet_Industrial/model/unet.py of NVIDIA/DeepLearningExamples and the blocks beside it,
    which have 1,850,305 parameters; a comment there says 1,824,945. Its loss adds Dice's to the cross-entropy.
    """
    inputs = x = keras.Input((image_size, image_size, 1))
    skips = []
    for width in (32, 32, 64, 128):
        skips.append(_pair(x, width, "same"))
        x = layers.MaxPooling2D(2)(skips[-1])
    x = _upscale(_pair(x, 256, "same"), 128)
    for width in (128, 64, 32):
        x = _upscale(_pair(_join(x, skips.pop()), width, "same", width // 2), width // 2)
    x = layers.Conv2D(1, 1, activation="sigmoid")(_pair(_join(x, skips.pop()), 32, "same"))
    model = keras.Model(inputs, x, name="unet_industrial")
    model.compile(optimizer=make_optimizer(optimizer), loss=dice_and_binary_cross_entropy)
    return model


def _upscale(x: Tensor, channels: int) -> Tensor:
    return layers.Conv2D(channels, 2, padding="same", activation="relu")(layers.UpSampling2D(2)(x))


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

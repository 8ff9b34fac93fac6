"""Residual networks behind the published measurements: v1, v1.5, v2, ResNeXt, Wide ResNet, SE, CIFAR.

``v1`` strides in the first 1x1 convolution of a bottleneck (He et al., 2015, arXiv:1512.03385), ``v1.5`` in
the 3x3 one (fb.resnet.torch, torchvision, MLPerf). Weight decay is left out: optimizers fold it in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers
from vision_blocks import ActivatedNorm, conv, conv_bn, finish, head, image, norm, squeeze_excite

__all__ = [
    "basic_block", "bottleneck", "resnet18", "resnet18_cifar", "resnet34", "resnet50_keras",
    "resnet50_mxnet", "resnet50_v1", "resnet50_v15", "resnet56_cifar_keras", "resnet101_v15",
    "resnet200_v2", "resnext50_32x4d", "resnext101_32x4d", "resnext101_32x8d", "se_resnext50_32x4d",
    "se_resnext101_32x4d", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip

Tensor = Any
Block = Callable[[Tensor, int, int], Tensor]
Sizes = tuple[int, int, str]  # image size, classes, optimizer
STAGE_CHANNELS = (64, 128, 256, 512)
DEPTH_18, DEPTH_50, DEPTH_101 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3)


def _shortcut(x: Tensor, channels: int, strides: int) -> Tensor:
    if strides == 1 and x.shape[-1] == channels:
        return x
    return conv_bn(x, channels, 1, strides, activation=None)


def basic_block(x: Tensor, channels: int, strides: int) -> Tensor:
    """Return the output of two 3x3 convolutions and a shortcut, `channels` deep."""
    y = conv_bn(x, channels, 3, strides)
    y = conv_bn(y, channels, 3, activation=None)
    return layers.ReLU()(layers.Add()([y, _shortcut(x, channels, strides)]))


def bottleneck(
    x: Tensor, channels: int, strides: int, *, first: bool = False, groups: int = 1, width: int = 64, se: int = 0
) -> Tensor:
    """Return a bottleneck's output, four times `channels` deep.

    Args:
        x: Input.
        channels: Stage channels, 64 to 512; a quarter of the output.
        strides: Of the block.
        first: Stride in the first 1x1 convolution (v1) instead of the 3x3 one (v1.5).
        groups: Of the 3x3 convolution.
        width: Channels a group where `channels` is 64.
        se: Hidden channels of squeeze-and-excitation at the block's end; none at 0.
    """
    inner = channels * width // 64 * groups
    y = conv_bn(x, inner, 1, strides if first else 1)
    y = conv_bn(y, inner, 3, 1 if first else strides, groups=groups)
    y = conv_bn(y, channels * 4, 1, activation=None)
    if se:
        y = squeeze_excite(y, channels * 4 // se)
    return layers.ReLU()(layers.Add()([y, _shortcut(x, channels * 4, strides)]))


def _fused_conv_bn(x: Tensor, channels: int, kernel: int, strides: int = 1) -> Tensor:
    return ActivatedNorm()(conv(x, channels, kernel, strides))


def _fused_bottleneck(x: Tensor, channels: int, strides: int) -> Tensor:
    """`bottleneck` of v1.5 whose normalizations activate, and add the shortcut, as they write."""
    y = _fused_conv_bn(_fused_conv_bn(x, channels, 1), channels, 3, strides)
    return ActivatedNorm()(conv(y, channels * 4, 1), _shortcut(x, channels * 4, strides))


def _resnet(
    name: str, depths: Sequence[int], block: Block, size: Sizes, *, pool_padding: str = "same",
    stem: Callable[[Tensor, int, int, int], Tensor] = conv_bn,
) -> keras.Model:  # fmt: skip
    image_size, classes, optimizer = size
    inputs = image(image_size)
    x = layers.MaxPooling2D(3, strides=2, padding=pool_padding)(stem(inputs, 64, 7, 2))
    for stage, (depth, channels) in enumerate(zip(depths, STAGE_CHANNELS, strict=True)):
        for i in range(depth):
            x = block(x, channels, 2 if i == 0 and stage > 0 else 1)
    return finish(inputs, head(x, classes), name, optimizer)


def _variant(**options: Any) -> Block:
    return lambda x, channels, strides: bottleneck(x, channels, strides, **options)


def resnet18(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-18 (He et al., 2015), projections where the shape changes (fb.resnet.torch, torchvision)."""
    return _resnet("resnet18", DEPTH_18, basic_block, (image_size, classes, optimizer))


def resnet34(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-34 (He et al., 2015), projections where the shape changes (fb.resnet.torch, torchvision)."""
    return _resnet("resnet34", DEPTH_50, basic_block, (image_size, classes, optimizer))


def resnet50_v1(
    image_size: int = 224, classes: int = 1001, optimizer: str = "sgd", pool_padding: str = "same"
) -> keras.Model:
    """ResNet-50 v1 of tf_cnn_benchmarks: 1001 classes, plain SGD; pool padding was ``valid`` until 2018."""
    block = _variant(first=True)
    return _resnet("resnet50_v1", DEPTH_50, block, (image_size, classes, optimizer), pool_padding=pool_padding)


def resnet50_v15(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", fused: bool = False
) -> keras.Model:
    """ResNet-50 v1.5 (fb.resnet.torch; Goyal et al., 2017, arXiv:1706.02677; torchvision).

    Args:
        image_size, classes, optimizer: As everywhere here.
        fused: Normalization, sum and ReLU are one kernel, as mixed precision has them in NVIDIA's MXNet
            (`--fuse-bn-relu`, `--fuse-bn-add-relu`) and PaddlePaddle (`fuse_bn_act_ops`, `fuse_bn_add_act_ops`).
    """
    size = (image_size, classes, optimizer)
    if fused:
        return _resnet("resnet50_v15", DEPTH_50, _fused_bottleneck, size, stem=_fused_conv_bn)
    return _resnet("resnet50_v15", DEPTH_50, _variant(), size)


def resnet101_v15(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-101 v1.5 (fb.resnet.torch, torchvision)."""
    return _resnet("resnet101_v15", DEPTH_101, _variant(), (image_size, classes, optimizer))


def resnext50_32x4d(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNeXt-50, 32 groups of 4 channels (Xie et al., 2016, arXiv:1611.05431)."""
    return _resnet("resnext50_32x4d", DEPTH_50, _variant(groups=32, width=4), (image_size, classes, optimizer))


def resnext101_32x4d(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNeXt-101, 32 groups of 4 channels (Xie et al., 2016)."""
    return _resnet("resnext101_32x4d", DEPTH_101, _variant(groups=32, width=4), (image_size, classes, optimizer))


def resnext101_32x8d(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNeXt-101, 32 groups of 8 channels (Xie et al., 2016; torchvision)."""
    return _resnet("resnext101_32x8d", DEPTH_101, _variant(groups=32, width=8), (image_size, classes, optimizer))


def se_resnext50_32x4d(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """SE-ResNeXt-50, reduction 16 (Hu et al., 2017, arXiv:1709.01507; timm's seresnext50_32x4d)."""
    block = _variant(groups=32, width=4, se=16)
    return _resnet("se_resnext50_32x4d", DEPTH_50, block, (image_size, classes, optimizer))


def se_resnext101_32x4d(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum"
) -> keras.Model:
    """SE-ResNeXt-101, reduction 16 (Hu et al., 2017; NVIDIA's DeepLearningExamples)."""
    block = _variant(groups=32, width=4, se=16)
    return _resnet("se_resnext101_32x4d", DEPTH_101, block, (image_size, classes, optimizer))


def wide_resnet50_2(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """Wide ResNet-50-2, bottlenecks twice as wide (Zagoruyko and Komodakis, 2016, arXiv:1605.07146)."""
    return _resnet("wide_resnet50_2", DEPTH_50, _variant(width=128), (image_size, classes, optimizer))


def wide_resnet101_2(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """Wide ResNet-101-2, bottlenecks twice as wide (Zagoruyko and Komodakis, 2016)."""
    return _resnet("wide_resnet101_2", DEPTH_101, _variant(width=128), (image_size, classes, optimizer))


def _preactivated(x: Tensor, channels: int, strides: int, *, project: bool) -> Tensor:
    start = norm(x)
    y = norm(conv(start, channels, 1))
    y = conv(norm(conv(y, channels, 3, strides)), channels * 4, 1)
    shortcut = conv(start, channels * 4, 1, strides) if project else x
    return layers.Add()([y, shortcut])


def _preactivated_resnet(
    name: str, depths: Sequence[int], inputs: Tensor, stem: Tensor, *, classes: int, optimizer: str
) -> keras.Model:
    x = stem
    for stage, (depth, channels) in enumerate(zip(depths, STAGE_CHANNELS, strict=True)):
        for i in range(depth):
            x = _preactivated(x, channels, 2 if i == 0 and stage > 0 else 1, project=i == 0)
    return finish(inputs, head(norm(x), classes), name, optimizer)


def resnet50_mxnet(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-50 v2 (He et al., 2016, arXiv:1603.05027) of MXNet's image-classification examples.

    The input is normalized over the batch without a learnt scale, and 3x3 convolutions carry the stride.
    """
    inputs = image(image_size)
    x = layers.BatchNormalization(scale=False)(inputs)
    stem = layers.MaxPooling2D(3, strides=2, padding="same")(conv_bn(x, 64, 7, 2))
    return _preactivated_resnet("resnet50_mxnet", DEPTH_50, inputs, stem, classes=classes, optimizer=optimizer)


def resnet200_v2(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-200 v2 (He et al., 2016; fb.resnet.torch)."""
    inputs = image(image_size)
    stem = layers.MaxPooling2D(3, strides=2, padding="same")(conv_bn(inputs, 64, 7, 2))
    return _preactivated_resnet("resnet200_v2", (3, 24, 36, 3), inputs, stem, classes=classes, optimizer=optimizer)


def resnet50_keras(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd") -> keras.Model:
    """ResNet-50 v1 of keras.applications: convolutions have a bias, too."""
    model = keras.applications.ResNet50(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    return finish(model.inputs, model.outputs[0], "resnet50_keras", optimizer)


def resnet18_cifar(image_size: int = 32, classes: int = 10, optimizer: str = "sgd_momentum") -> keras.Model:
    """ResNet-18 with a 3x3 stem and no pooling, for small images (kuangliu/pytorch-cifar)."""
    inputs = image(image_size)
    x = conv_bn(inputs, 64, 3)
    for stage, channels in enumerate(STAGE_CHANNELS):
        for i in range(2):
            x = basic_block(x, channels, 2 if i == 0 and stage > 0 else 1)
    return finish(inputs, head(x, classes), "resnet18_cifar", optimizer)


def resnet56_cifar_keras(image_size: int = 32, classes: int = 10, optimizer: str = "adam") -> keras.Model:
    """ResNet-56 v1 of Keras's cifar10_resnet example: convolutions with bias, 1x1 projections."""

    def biased(x: Tensor, channels: int, kernel: int, strides: int, *, active: bool) -> Tensor:
        x = layers.Conv2D(channels, kernel, strides=strides, padding="same", kernel_regularizer="l2")(x)
        return norm(x, "relu" if active else None)

    inputs = image(image_size)
    x = biased(inputs, 16, 3, 1, active=True)
    for stage, channels in enumerate((16, 32, 64)):
        for i in range(9):
            strides = 2 if i == 0 and stage > 0 else 1
            y = biased(biased(x, channels, 3, strides, active=True), channels, 3, 1, active=False)
            if strides == 2:
                x = layers.Conv2D(channels, 1, strides=2, padding="same", kernel_regularizer="l2")(x)
            x = layers.ReLU()(layers.Add()([x, y]))
    return finish(inputs, head(x, classes), "resnet56_cifar_keras", optimizer)

"""Inception networks and NASNet behind the published measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers
from vision_blocks import bias_conv, conv_bn, finish, head, image
from vision_classic import LocalResponseNormalization

__all__ = ["inception_bn", "inception_resnet_v2", "inception_v1", "inception_v4", "nasnet_large"]

Tensor = Any
Step = tuple[Any, ...]


def _average(x: Tensor) -> Tensor:
    return layers.AveragePooling2D(3, strides=1, padding="same")(x)


def _max(x: Tensor, strides: int = 2, padding: str = "valid") -> Tensor:
    return layers.MaxPooling2D(3, strides=strides, padding=padding)(x)


def _chain(x: Tensor, *steps: Step) -> Tensor:
    """Apply `(channels, kernel)` or `(channels, kernel, strides)` convolutions; stride 2 is unpadded."""
    for channels, kernel, *strides in steps:
        stride = strides[0] if strides else 1
        x = conv_bn(x, channels, kernel, stride, padding="valid" if stride == 2 else "same")
    return x


def _join(*branches: Tensor) -> Tensor:
    return layers.Concatenate()(list(branches))


def _googlenet_module(x: Tensor, sizes: Sequence[int]) -> Tensor:
    one, reduce3, three, reduce5, five, pool = sizes
    return _join(
        bias_conv(x, one, 1),
        bias_conv(bias_conv(x, reduce3, 1), three, 3),
        bias_conv(bias_conv(x, reduce5, 1), five, 5),
        bias_conv(_max(x, 1, "same"), pool, 1),
    )


GOOGLENET = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
     (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # fmt: skip


def inception_v1(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """GoogLeNet (Szegedy et al., 2014, arXiv:1409.4842) without batch norm, its main branch."""
    inputs = image(image_size)
    x = LocalResponseNormalization()(_max(bias_conv(inputs, 64, 7, 2), padding="same"))
    x = LocalResponseNormalization()(bias_conv(bias_conv(x, 64, 1), 192, 3))
    for modules in GOOGLENET:
        x = _max(x, padding="same")
        for sizes in modules:
            x = _googlenet_module(x, sizes)
    return finish(inputs, head(x, classes, dropout=0.4), "inception_v1", optimizer)


def _bn_conv(x: Tensor, channels: int, kernel: int, strides: int = 1) -> Tensor:
    """Convolve with bias before the normalization, as MXNet's example does."""
    x = bias_conv(x, channels, kernel, strides, activation=None)
    return layers.ReLU()(layers.BatchNormalization()(x))


def _bn_module(x: Tensor, sizes: Sequence[int], pool: str) -> Tensor:
    one, reduce3, three, reduce33, double, projection = sizes
    pooled = _average(x) if pool == "avg" else _max(x, 1, "same")
    return _join(
        _bn_conv(x, one, 1),
        _bn_conv(_bn_conv(x, reduce3, 1), three, 3),
        _bn_conv(_bn_conv(_bn_conv(x, reduce33, 1), double, 3), double, 3),
        _bn_conv(pooled, projection, 1),
    )


def _bn_reduction(x: Tensor, sizes: Sequence[int]) -> Tensor:
    reduce3, three, reduce33, double = sizes
    return _join(
        _bn_conv(_bn_conv(x, reduce3, 1), three, 3, 2),
        _bn_conv(_bn_conv(_bn_conv(x, reduce33, 1), double, 3), double, 3, 2),
        _max(x, padding="same"),
    )


def inception_bn(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """Inception-BN (Ioffe and Szegedy, 2015, arXiv:1502.03167) of MXNet's image-classification examples."""
    inputs = image(image_size)
    x = _max(_bn_conv(inputs, 64, 7, 2))
    x = _max(_bn_conv(_bn_conv(x, 64, 1), 192, 3))
    for sizes in ((64, 64, 64, 64, 96, 32), (64, 64, 96, 64, 96, 64)):
        x = _bn_module(x, sizes, "avg")
    x = _bn_reduction(x, (128, 160, 64, 96))
    for sizes in ((224, 64, 96, 96, 128, 128), (192, 96, 128, 96, 128, 128), (160, 128, 160, 128, 160, 128),
                  (96, 128, 192, 160, 192, 128)):  # fmt: skip
        x = _bn_module(x, sizes, "avg")
    x = _bn_reduction(x, (128, 192, 192, 256))
    x = _bn_module(x, (352, 192, 320, 160, 224, 128), "avg")
    x = _bn_module(x, (352, 192, 320, 192, 224, 128), "max")
    return finish(inputs, head(x, classes), "inception_bn", optimizer)


def _v4_stem(inputs: Tensor) -> Tensor:
    x = conv_bn(_chain(inputs, (32, 3, 2)), 32, 3, padding="valid")
    x = _chain(x, (64, 3))
    x = _join(_max(x), _chain(x, (96, 3, 2)))
    x = _join(
        conv_bn(_chain(x, (64, 1)), 96, 3, padding="valid"),
        conv_bn(_chain(x, (64, 1), (64, (7, 1)), (64, (1, 7))), 96, 3, padding="valid"),
    )
    return _join(_chain(x, (192, 3, 2)), _max(x))


def _v4_a(x: Tensor) -> Tensor:
    return _join(
        _chain(_average(x), (96, 1)), _chain(x, (96, 1)), _chain(x, (64, 1), (96, 3)),
        _chain(x, (64, 1), (96, 3), (96, 3)),
    )  # fmt: skip


def _v4_b(x: Tensor) -> Tensor:
    return _join(
        _chain(_average(x), (128, 1)), _chain(x, (384, 1)), _chain(x, (192, 1), (224, (1, 7)), (256, (7, 1))),
        _chain(x, (192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1))),
    )  # fmt: skip


def _v4_c(x: Tensor) -> Tensor:
    split, deep = _chain(x, (384, 1)), _chain(x, (384, 1), (448, (1, 3)), (512, (3, 1)))
    return _join(
        _chain(_average(x), (256, 1)), _chain(x, (256, 1)),
        _chain(split, (256, (1, 3))), _chain(split, (256, (3, 1))),
        _chain(deep, (256, (3, 1))), _chain(deep, (256, (1, 3))),
    )  # fmt: skip


def _v4_reduction_a(x: Tensor) -> Tensor:
    return _join(_max(x), _chain(x, (384, 3, 2)), _chain(x, (192, 1), (224, 3), (256, 3, 2)))


def _v4_reduction_b(x: Tensor) -> Tensor:
    long = _chain(x, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2))
    return _join(_max(x), _chain(x, (192, 1), (192, 3, 2)), long)


def inception_v4(image_size: int = 299, classes: int = 1001, optimizer: str = "sgd") -> keras.Model:
    """Inception-v4 (Szegedy et al., 2016, arXiv:1602.07261), as tf_cnn_benchmarks and timm build it."""
    inputs = image(image_size)
    x = _v4_stem(inputs)
    for _ in range(4):
        x = _v4_a(x)
    x = _v4_reduction_a(x)
    for _ in range(7):
        x = _v4_b(x)
    x = _v4_reduction_b(x)
    for _ in range(3):
        x = _v4_c(x)
    return finish(inputs, head(x, classes, dropout=0.2), "inception_v4", optimizer)


def inception_resnet_v2(
    image_size: int = 299, classes: int = 1000, optimizer: str = "sgd_momentum"
) -> keras.Model:
    """Inception-ResNet-v2 (Szegedy et al., 2016) of keras.applications: normalization without a scale."""
    shape = (image_size, image_size, 3)
    model = keras.applications.InceptionResNetV2(weights=None, input_shape=shape, classes=classes)
    return finish(model.inputs, model.outputs[0], "inception_resnet_v2", optimizer)


def nasnet_large(image_size: int = 331, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """NASNet-A large, 6 @ 4032 (Zoph et al., 2017, arXiv:1707.07012) of keras.applications."""
    shape = (image_size, image_size, 3)
    model = keras.applications.NASNetLarge(weights=None, input_shape=shape, classes=classes)
    return finish(model.inputs, model.outputs[0], "nasnet_large", optimizer)

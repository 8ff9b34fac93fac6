"""Networks without residuals behind the published measurements: AlexNets, VGG, SqueezeNet, Keras's examples.

"AlexNet" is a different network in every source, so each has its own function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops
from vision_blocks import bias_conv, finish, image

__all__ = [
    "alexnet_bvlc", "alexnet_mxnet", "alexnet_tensorpack", "alexnet_tf_benchmarks", "cifar10_cnn_keras",
    "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg13", "vgg16", "vgg19",
]  # fmt: skip

Tensor = Any
VGG_CHANNELS = (64, 128, 256, 512, 512)


class LocalResponseNormalization(layers.Layer):  # type: ignore[misc]
    """Divide by a power of the sum of squares over five neighbouring channels (Krizhevsky et al., 2012)."""

    def call(self, x: Tensor) -> Tensor:
        squares = ops.expand_dims(ops.square(x), -1)
        shape = ops.shape(x)
        squares = ops.reshape(squares, (-1, shape[1] * shape[2], shape[3], 1))
        sums = 5.0 * ops.average_pool(squares, (1, 5), strides=1, padding="same")
        return x * ops.power(1.0 + 1e-4 / 5.0 * ops.reshape(sums, (-1, *shape[1:])), -0.75)


def _dense_head(x: Tensor, classes: int, dropout: float) -> Tensor:
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(4096, activation="relu")(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, activation="softmax")(x)


def alexnet_tf_benchmarks(image_size: int = 227, classes: int = 1001, optimizer: str = "sgd") -> keras.Model:
    """AlexNet of tf_cnn_benchmarks: one tower of 64, 192, 384, 384, 256 channels; the input is 224 + 3."""
    inputs = image(image_size)
    x = layers.MaxPooling2D(3, strides=2)(bias_conv(inputs, 64, 11, 4, padding="valid"))
    x = layers.MaxPooling2D(3, strides=2)(bias_conv(x, 192, 5))
    for channels in (384, 384, 256):
        x = bias_conv(x, channels, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    return finish(inputs, _dense_head(x, classes, 0.5), "alexnet_tf_benchmarks", optimizer)


def alexnet_tensorpack(image_size: int = 224, classes: int = 1000, optimizer: str = "rmsprop") -> keras.Model:
    """AlexNet of tensorpack/benchmarks (other-wrappers): 64, 192, 384, 256, 256 channels, no padding."""
    inputs = image(image_size)
    x = layers.MaxPooling2D(3, strides=2)(bias_conv(inputs, 64, 11, 4, padding="valid"))
    x = layers.MaxPooling2D(3, strides=2)(bias_conv(x, 192, 5))
    for channels in (384, 256, 256):
        x = bias_conv(x, channels, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    return finish(inputs, _dense_head(x, classes, 0.5), "alexnet_tensorpack", optimizer)


def alexnet_mxnet(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """AlexNet of MXNet's examples: the paper's channels, no groups, response normalization after pooling."""
    inputs = image(image_size)
    x = bias_conv(inputs, 96, 11, 4, padding="valid")
    x = LocalResponseNormalization()(layers.MaxPooling2D(3, strides=2)(x))
    x = bias_conv(x, 256, 5)
    x = LocalResponseNormalization()(layers.MaxPooling2D(3, strides=2)(x))
    for channels in (384, 384, 256):
        x = bias_conv(x, channels, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    return finish(inputs, _dense_head(x, classes, 0.5), "alexnet_mxnet", optimizer)


def _grouped(x: Tensor, channels: int, kernel: int) -> Tensor:
    return layers.Conv2D(channels, kernel, groups=2, padding="same", activation="relu")(x)


def alexnet_bvlc(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """BVLC AlexNet of Caffe (Krizhevsky et al., 2012): two groups, response normalization before pooling.

    Caffe rounds pooling up, so that 224 pixels leave 6 x 6 positions as 227 do.
    """
    inputs = image(image_size)
    x = LocalResponseNormalization()(bias_conv(inputs, 96, 11, 4, padding="valid"))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = LocalResponseNormalization()(_grouped(x, 256, 5))
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = _grouped(_grouped(bias_conv(x, 384, 3), 384, 3), 256, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    return finish(inputs, _dense_head(x, classes, 0.5), "alexnet_bvlc", optimizer)


def _vgg(
    name: str, depths: Sequence[int], *, image_size: int, classes: int, optimizer: str, dropout: float,
    batch_norm: bool,
) -> keras.Model:  # fmt: skip
    inputs = x = image(image_size)
    for depth, channels in zip(depths, VGG_CHANNELS, strict=True):
        for _ in range(depth):
            x = _biased_conv_bn(x, channels) if batch_norm else bias_conv(x, channels, 3)
        x = layers.MaxPooling2D(2)(x)
    return finish(inputs, _dense_head(x, classes, dropout), name + "_bn" * batch_norm, optimizer)


def _biased_conv_bn(x: Tensor, channels: int) -> Tensor:
    x = layers.BatchNormalization()(bias_conv(x, channels, 3, activation=None))
    return layers.ReLU()(x)


def vgg11(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", dropout: float = 0.5,
    batch_norm: bool = False,
) -> keras.Model:  # fmt: skip
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration A; with batch norm as in torchvision."""
    return _vgg("vgg11", (1, 1, 2, 2, 2), image_size=image_size, classes=classes, optimizer=optimizer,
                dropout=dropout, batch_norm=batch_norm)  # fmt: skip


def vgg13(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", dropout: float = 0.5,
    batch_norm: bool = False,
) -> keras.Model:  # fmt: skip
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration B; with batch norm as in torchvision."""
    return _vgg("vgg13", (2, 2, 2, 2, 2), image_size=image_size, classes=classes, optimizer=optimizer,
                dropout=dropout, batch_norm=batch_norm)  # fmt: skip


def vgg16(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", dropout: float = 0.5,
    batch_norm: bool = False,
) -> keras.Model:  # fmt: skip
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration D; with batch norm as in torchvision."""
    return _vgg("vgg16", (2, 2, 3, 3, 3), image_size=image_size, classes=classes, optimizer=optimizer,
                dropout=dropout, batch_norm=batch_norm)  # fmt: skip


def vgg19(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", dropout: float = 0.5,
    batch_norm: bool = False,
) -> keras.Model:  # fmt: skip
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration E; with batch norm as in torchvision."""
    return _vgg("vgg19", (2, 2, 4, 4, 4), image_size=image_size, classes=classes, optimizer=optimizer,
                dropout=dropout, batch_norm=batch_norm)  # fmt: skip


def _fire(x: Tensor, squeeze: int, expand: int) -> Tensor:
    x = bias_conv(x, squeeze, 1)
    return layers.Concatenate()([bias_conv(x, expand, 1), bias_conv(x, expand, 3)])


FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def _ceil_pool(x: Tensor) -> Tensor:
    """Max pooling 3x3/2 that rounds the output size up, as torchvision asks for."""
    odd = (x.shape[1] - 3) % 2
    return layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(((0, odd), (0, odd)))(x) if odd else x)


def _squeezenet(
    name: str, inputs: Tensor, stem: Tensor, pools: Sequence[int], *, classes: int, optimizer: str
) -> keras.Model:
    x = _ceil_pool(stem)
    for i, (squeeze, expand) in enumerate(FIRES):
        if i in pools:
            x = _ceil_pool(x)
        x = _fire(x, squeeze, expand)
    x = bias_conv(layers.Dropout(0.5)(x), classes, 1)
    return finish(inputs, layers.Softmax()(layers.GlobalAveragePooling2D()(x)), name, optimizer)


def squeezenet1_0(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """SqueezeNet 1.0 (Iandola et al., 2016, arXiv:1602.07360; torchvision)."""
    inputs = image(image_size)
    stem = bias_conv(inputs, 96, 7, 2, padding="valid")
    return _squeezenet("squeezenet1_0", inputs, stem, (3, 7), classes=classes, optimizer=optimizer)


def squeezenet1_1(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """SqueezeNet 1.1, 2.4 times less work than 1.0 (torchvision)."""
    inputs = image(image_size)
    stem = bias_conv(inputs, 64, 3, 2, padding="valid")
    return _squeezenet("squeezenet1_1", inputs, stem, (2, 4), classes=classes, optimizer=optimizer)


def cifar10_cnn_keras(image_size: int = 32, classes: int = 10, optimizer: str = "rmsprop") -> keras.Model:
    """Keras's cifar10_cnn example: twice two 3x3 convolutions, dense 512."""
    inputs = x = image(image_size)
    for channels in (32, 64):
        x = bias_conv(bias_conv(x, channels, 3), channels, 3, padding="valid")
        x = layers.Dropout(0.25)(layers.MaxPooling2D(2)(x))
    x = layers.Dropout(0.5)(layers.Dense(512, activation="relu")(layers.Flatten()(x)))
    return finish(inputs, layers.Dense(classes, activation="softmax")(x), "cifar10_cnn_keras", optimizer)

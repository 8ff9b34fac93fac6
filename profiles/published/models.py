"""The models behind the published measurements, built as their authors describe them.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``models.py:vgg16?image_size=224&classes=1000``.

The small models of PROFET are described with its data (ddps-lab/profet, commit e69477fe6ea4 of 2023-01-01,
``data_generation/workload/model_info.py``): tf.keras 2.5, SGD, categorical cross-entropy, accuracy metric,
channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers

__all__ = [
    "cifar10_cnn", "mnist_cnn", "mobilenet_v2", "resnet18", "resnet50", "resnet_small", "vgg11", "vgg13", "vgg16",
    "vgg19",
]  # fmt: skip

Tensor = Any
VGG_CHANNELS = (64, 128, 256, 512, 512)
RESNET_CHANNELS = (64, 128, 256, 512)
L2_WEIGHT = 1e-4


def _finish(inputs: Tensor, outputs: Tensor, name: str) -> keras.Model:
    model = keras.Model(inputs, outputs, name=name)
    model.compile(optimizer="sgd", loss="categorical_crossentropy", metrics=["accuracy"])
    return model


def _image(image_size: int) -> Tensor:
    return keras.Input((image_size, image_size, 3))


def _vgg(name: str, depths: Sequence[int], image_size: int, classes: int) -> keras.Model:
    inputs = x = _image(image_size)
    for depth, channels in zip(depths, VGG_CHANNELS, strict=True):
        for _ in range(depth):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.Flatten()(x)
    x = layers.Dense(4096, activation="relu")(x)
    x = layers.Dense(4096, activation="relu")(x)
    return _finish(inputs, layers.Dense(classes, activation="softmax")(x), name)


def vgg11(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration A."""
    return _vgg("vgg11", (1, 1, 2, 2, 2), image_size, classes)


def vgg13(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration B."""
    return _vgg("vgg13", (2, 2, 2, 2, 2), image_size, classes)


def vgg16(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration D."""
    return _vgg("vgg16", (2, 2, 3, 3, 3), image_size, classes)


def vgg19(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Simonyan and Zisserman, 2014, arXiv:1409.1556, configuration E."""
    return _vgg("vgg19", (2, 2, 4, 4, 4), image_size, classes)


def _conv(x: Tensor, channels: int, kernel: int, strides: int = 1, padding: str = "same") -> Tensor:
    return layers.Conv2D(
        channels, kernel, strides=strides, padding=padding, kernel_regularizer=keras.regularizers.L2(L2_WEIGHT)
    )(x)


def _bn_relu(x: Tensor) -> Tensor:
    return layers.ReLU()(layers.BatchNormalization()(x))


def _bn_relu_conv(x: Tensor, channels: int, kernel: int, strides: int = 1) -> Tensor:
    return _conv(_bn_relu(x), channels, kernel, strides)


def _shortcut(x: Tensor, residual: Tensor) -> Tensor:
    stride = round(x.shape[1] / residual.shape[1])
    if stride > 1 or x.shape[-1] != residual.shape[-1]:
        x = _conv(x, residual.shape[-1], 1, stride, padding="valid")
    return layers.Add()([x, residual])


def _basic_block(x: Tensor, channels: int, strides: int, first: bool) -> Tensor:
    residual = _conv(x, channels, 3, strides) if first else _bn_relu_conv(x, channels, 3, strides)
    return _shortcut(x, _bn_relu_conv(residual, channels, 3))


def _bottleneck(x: Tensor, channels: int, strides: int, first: bool) -> Tensor:
    residual = _conv(x, channels, 1, strides) if first else _bn_relu_conv(x, channels, 1, strides)
    residual = _bn_relu_conv(residual, channels, 3)
    return _shortcut(x, _bn_relu_conv(residual, channels * 4, 1))


def _preactivation_resnet(
    name: str, block: Callable[..., Tensor], depths: Sequence[int], image_size: int, classes: int
) -> keras.Model:
    """He et al., 2016, "Identity Mappings in Deep Residual Networks", arXiv:1603.05027."""
    inputs = _image(image_size)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(_bn_relu(_conv(inputs, 64, 7, 2)))
    for stage, (depth, channels) in enumerate(zip(depths, RESNET_CHANNELS, strict=True)):
        for i in range(depth):
            strides = 2 if i == 0 and stage > 0 else 1
            x = block(x, channels, strides, stage == 0 and i == 0)
    x = layers.Flatten()(layers.AveragePooling2D(x.shape[1:3])(_bn_relu(x)))
    return _finish(inputs, layers.Dense(classes, activation="softmax")(x), name)


def resnet18(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Pre-activation ResNet-18 of basic blocks with L2 weight decay (PROFET)."""
    return _preactivation_resnet("resnet18", _basic_block, (2, 2, 2, 2), image_size, classes)


def resnet50(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Pre-activation ResNet-50 of bottlenecks with L2 weight decay (PROFET)."""
    return _preactivation_resnet("resnet50", _bottleneck, (3, 4, 6, 3), image_size, classes)


def resnet_small(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """PROFET's ResNetSmall: four residual blocks of two 1x1 convolutions."""
    inputs = _image(image_size)
    x = layers.Conv2D(64, 7, strides=2, padding="same", activation="relu")(inputs)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.BatchNormalization()(x))
    for channels, strides in ((64, 2), (64, 1), (128, 2), (128, 1)):
        shortcut = x
        x = layers.BatchNormalization()(layers.Conv2D(channels, 1, strides=strides)(x))
        x = layers.BatchNormalization()(layers.Conv2D(channels, 1)(layers.ReLU()(x)))
        if strides > 1:
            shortcut = layers.BatchNormalization()(layers.Conv2D(channels, 1, strides=strides)(shortcut))
        x = layers.ReLU()(layers.Add()([x, shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    return _finish(inputs, layers.Dense(classes, activation="softmax")(x), "resnet_small")


def mnist_cnn(image_size: int = 32, classes: int = 10) -> keras.Model:
    """The Keras site's first convolutional network, on three channels (PROFET)."""
    inputs = _image(image_size)
    x = layers.MaxPooling2D(2)(layers.Conv2D(32, 3, activation="relu")(inputs))
    x = layers.MaxPooling2D(2)(layers.Conv2D(64, 3, activation="relu")(x))
    x = layers.Dropout(0.5)(layers.Flatten()(x))
    return _finish(inputs, layers.Dense(classes, activation="softmax")(x), "mnist_cnn")


def cifar10_cnn(image_size: int = 32, classes: int = 10) -> keras.Model:
    """Keras's old CIFAR-10 example network (PROFET)."""
    inputs = x = _image(image_size)
    for channels in (32, 64):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(channels, 3, activation="relu")(x)
        x = layers.Dropout(0.25)(layers.MaxPooling2D(2)(x))
    x = layers.Dense(512, activation="relu")(layers.Flatten()(x))
    x = layers.Dropout(0.5)(x)
    return _finish(inputs, layers.Dense(classes, activation="softmax")(x), "cifar10_cnn")


def mobilenet_v2(image_size: int = 224, classes: int = 1000) -> keras.Model:
    """Sandler et al., 2018, arXiv:1801.04381, as `keras.applications` has it (PROFET)."""
    built = keras.applications.MobileNetV2(input_shape=(image_size, image_size, 3), weights=None, classes=classes)
    return _finish(built.input, built.output, "mobilenet_v2")

"""Pieces that the vision models share: convolutions with batch normalization, heads, compilation.

Shapes are channels last. PyTorch's symmetric padding is written as ``same``: for the even sizes used here the
output has the same size and costs the same.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

__all__ = [
    "ActivatedNorm", "bias_conv", "conv", "conv_bn", "depthwise_bn", "finish", "head", "image", "make_optimizer",
    "norm", "squeeze_excite",
]  # fmt: skip

Tensor = Any
Pair = int | tuple[int, int]


def image(image_size: int, channels: int = 3) -> Tensor:
    """Return a square image input, channels last."""
    return keras.Input((image_size, image_size, channels))


def conv(
    x: Tensor, channels: int, kernel: Pair, strides: int = 1, *, groups: int = 1, padding: str = "same"
) -> Tensor:
    """Convolve without bias: what goes before a normalization."""
    return layers.Conv2D(channels, kernel, strides=strides, groups=groups, padding=padding, use_bias=False)(x)


def bias_conv(
    x: Tensor,
    channels: int,
    kernel: Pair,
    strides: int = 1,
    *,
    padding: str = "same",
    activation: str | None = "relu",
) -> Tensor:
    """Convolve with bias and activate: networks without normalization."""
    return layers.Conv2D(channels, kernel, strides=strides, padding=padding, activation=activation)(x)


def norm(x: Tensor, activation: str | None = "relu") -> Tensor:
    """Normalize over the batch, then activate."""
    x = layers.BatchNormalization()(x)
    return x if activation is None else layers.Activation(activation)(x)


class ActivatedNorm(layers.BatchNormalization):
    """Normalization over the batch, a sum and ReLU, which cuDNN has as one kernel for 16-bit channels last.

    NVIDIA, cuDNN 7.4 release notes: CUDNN_BATCHNORM_OPS_BN_ACTIVATION and ..._BN_ADD_ACTIVATION.
    """

    def call(self, inputs: Tensor, shortcut: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Return the activated sum of what is normalized and a shortcut, if any."""
        y = super().call(inputs, training=training)
        return ops.relu(y if shortcut is None else y + shortcut)

    def compute_output_shape(self, input_shape: Any, *_: Any) -> Any:
        """The shape of the inputs."""
        return input_shape


def conv_bn(
    x: Tensor,
    channels: int,
    kernel: Pair,
    strides: int = 1,
    *,
    groups: int = 1,
    padding: str = "same",
    activation: str | None = "relu",
) -> Tensor:
    """Convolve without bias, normalize over the batch, activate."""
    return norm(conv(x, channels, kernel, strides, groups=groups, padding=padding), activation)


def depthwise_bn(x: Tensor, kernel: int, strides: int = 1, *, activation: str | None = "relu") -> Tensor:
    """Convolve each channel by itself, normalize over the batch, activate."""
    x = layers.DepthwiseConv2D(kernel, strides=strides, padding="same", use_bias=False)(x)
    return norm(x, activation)


def squeeze_excite(x: Tensor, reduced: int, *, activation: str = "relu", gate: str = "sigmoid") -> Tensor:
    """Scale channels by what two dense layers make of their means (Hu et al., 2017, arXiv:1709.01507)."""
    channels = x.shape[-1]
    scale = layers.GlobalAveragePooling2D(keepdims=True)(x)
    scale = bias_conv(scale, reduced, 1, activation=activation)
    return layers.Multiply()([x, bias_conv(scale, channels, 1, activation=gate)])


def head(x: Tensor, classes: int, *, dropout: float = 0.0) -> Tensor:
    """Average over positions and classify: softmax probabilities."""
    x = layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, activation="softmax")(x)


def make_optimizer(name: str) -> keras.optimizers.Optimizer:
    """Return an optimizer by the name used in the measurements.

    Raises:
        ValueError: The name is not one of them.
    """
    if name == "sgd_momentum":
        return keras.optimizers.SGD(0.1, momentum=0.9)
    if name not in ("sgd", "rmsprop", "adam", "adadelta"):
        raise ValueError(f"unknown optimizer `{name}`")
    return keras.optimizers.get(name)


def finish(inputs: Tensor, outputs: Tensor, name: str, optimizer: str) -> keras.Model:
    """Return a classifier compiled with categorical cross-entropy."""
    model = keras.Model(inputs, outputs, name=name)
    model.compile(optimizer=make_optimizer(optimizer), loss="categorical_crossentropy")
    return model

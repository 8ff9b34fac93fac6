"""Transformers and MLPs on images behind the published measurements: ViT, DeiT, MLP-Mixer, ConvNeXt."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops
from vision_blocks import finish, image

__all__ = ["convnext", "mixer_b16", "mlp", "vit"]

Tensor = Any
VIT = {  # width, depth, heads, hidden channels of the MLP
    "tiny": (192, 12, 3, 768), "small": (384, 12, 6, 1536), "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096), "giant": (1664, 48, 16, 8192),
}  # fmt: skip


class ClassToken(layers.Layer):  # type: ignore[misc]
    """Put a learnt token in front, add learnt positions: (batch, n, width) to (batch, n + 1, width)."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.token = self.add_weight(shape=(1, 1, shape[2]), initializer="zeros", name="token")
        self.positions = self.add_weight(shape=(1, shape[1] + 1, shape[2]), initializer="normal", name="positions")

    def call(self, x: Tensor) -> Tensor:
        token = ops.broadcast_to(ops.cast(self.token, x.dtype), (ops.shape(x)[0], 1, x.shape[2]))
        return ops.concatenate([token, x], axis=1) + ops.cast(self.positions, x.dtype)


def mlp(x: Tensor, hidden: int) -> Tensor:
    """Two dense layers with GELU between, back to the width of `x`."""
    width = x.shape[-1]
    return layers.Dense(width)(layers.Dense(hidden, activation="gelu")(x))


def _patches(inputs: Tensor, patch: int, width: int) -> Tensor:
    x = layers.Conv2D(width, patch, strides=patch)(inputs)
    return layers.Reshape((x.shape[1] * x.shape[2], width))(x)


def _encoder_block(x: Tensor, heads: int, hidden: int) -> Tensor:
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.MultiHeadAttention(heads, x.shape[-1] // heads)(y, y)
    x = layers.Add()([x, y])
    return layers.Add()([x, mlp(layers.LayerNormalization(epsilon=1e-6)(x), hidden)])


def vit(
    image_size: int = 224,
    classes: int = 1000,
    optimizer: str = "sgd_momentum",
    variant: str = "base",
    patch: int = 16,
) -> keras.Model:
    """Vision Transformer with a class token (Dosovitskiy et al., 2020, arXiv:2010.11929); DeiT, too.

    Args:
        image_size: Side [pixels].
        classes: Of the output.
        optimizer: Name of the optimizer.
        variant: tiny, small, base, large, or giant (Zhai et al., 2021, arXiv:2106.04560, "ViT-G").
        patch: Side of a patch [pixels].
    """
    width, depth, heads, hidden = VIT[variant]
    inputs = image(image_size)
    x = ClassToken()(_patches(inputs, patch, width))
    for _ in range(depth):
        x = _encoder_block(x, heads, hidden)
    x = layers.LayerNormalization(epsilon=1e-6)(x)[:, 0]
    return finish(inputs, layers.Dense(classes, activation="softmax")(x), f"vit_{variant}_{patch}", optimizer)


def mixer_b16(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """MLP-Mixer B/16 (Tolstikhin et al., 2021, arXiv:2105.01601)."""
    inputs = image(image_size)
    x = _patches(inputs, 16, 768)
    for _ in range(12):
        y = layers.Permute((2, 1))(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([x, layers.Permute((2, 1))(mlp(y, 384))])
        x = layers.Add()([x, mlp(layers.LayerNormalization(epsilon=1e-6)(x), 3072)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return finish(inputs, layers.Dense(classes, activation="softmax")(x), "mixer_b16", optimizer)


CONVNEXT = {
    "tiny": ((96, 192, 384, 768), (3, 3, 9, 3)), "small": ((96, 192, 384, 768), (3, 3, 27, 3)),
    "base": ((128, 256, 512, 1024), (3, 3, 27, 3)), "large": ((192, 384, 768, 1536), (3, 3, 27, 3)),
}  # fmt: skip


class LayerScale(layers.Layer):  # type: ignore[misc]
    """Multiply each channel by a learnt factor."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(1e-6), name="gamma"
        )

    def call(self, x: Tensor) -> Tensor:
        return x * ops.cast(self.gamma, x.dtype)


def convnext(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", variant: str = "tiny"
) -> keras.Model:
    """ConvNeXt tiny, small, base, large (Liu et al., 2022, arXiv:2201.03545)."""
    widths, depths = CONVNEXT[variant]
    inputs = x = image(image_size)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            x = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Conv2D(width, 2 if stage else 4, strides=2 if stage else 4)(x)
        if not stage:
            x = layers.LayerNormalization(epsilon=1e-6)(x)
        for _ in range(depth):
            y = layers.DepthwiseConv2D(7, padding="same")(x)
            x = layers.Add()([x, LayerScale()(mlp(layers.LayerNormalization(epsilon=1e-6)(y), 4 * width))])
    x = layers.LayerNormalization(epsilon=1e-6)(layers.GlobalAveragePooling2D()(x))
    return finish(inputs, layers.Dense(classes, activation="softmax")(x), f"convnext_{variant}", optimizer)

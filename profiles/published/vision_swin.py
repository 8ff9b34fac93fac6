"""Swin Transformer behind the published measurements (Liu et al., 2021, arXiv:2103.14030)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops
from vision_blocks import finish, image
from vision_transformer import mlp

__all__ = ["swin"]

Tensor = Any
WINDOW = 7
SWIN = {"tiny": (96, (2, 2, 6, 2)), "small": (96, (2, 2, 18, 2)), "base": (128, (2, 2, 18, 2))}


def _relative_index(window: int) -> np.ndarray:
    """Return which of (2 window - 1)^2 biases each pair of positions uses, shape (window^2, window^2)."""
    positions = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
    offsets = positions[:, :, None] - positions[:, None, :] + window - 1
    return offsets[0] * (2 * window - 1) + offsets[1]


def _shift_mask(side: int, window: int, shift: int) -> np.ndarray:
    """Return 0 where two positions of a shifted window were neighbours, -100 where not: (windows, n, n)."""
    bands = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    regions = np.zeros((side, side))
    for i, rows in enumerate(bands):
        for j, columns in enumerate(bands):
            regions[rows, columns] = 3 * i + j
    count = side // window
    flat = regions.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(count * count, -1)
    return np.where(flat[:, :, None] == flat[:, None, :], 0.0, -100.0).astype("float32")


class WindowAttention(layers.Layer):  # type: ignore[misc]
    """Attend within windows of 7 x 7 positions, cyclically shifted by `shift`; the shape stays."""

    def __init__(self, heads: int, shift: int, **options: Any) -> None:
        super().__init__(**options)
        self.heads, self.shift = heads, shift

    def build(self, shape: tuple[int, ...]) -> None:
        self.qkv, self.project = layers.Dense(3 * shape[-1]), layers.Dense(shape[-1])
        self.qkv.build(shape)
        self.project.build(shape)
        size = ((2 * WINDOW - 1) ** 2, self.heads)
        self.bias = self.add_weight(shape=size, initializer="zeros", name="relative_position_bias")

    def call(self, x: Tensor) -> Tensor:
        _, side, _, width = x.shape
        if self.shift:
            x = ops.roll(x, (-self.shift, -self.shift), axis=(1, 2))
        windows = (side // WINDOW) ** 2
        x = _to_windows(x, side, width)
        x = self._merge(self._attend(x, windows, side), width)
        x = _from_windows(self.project(x), side, width)
        return ops.roll(x, (self.shift, self.shift), axis=(1, 2)) if self.shift else x

    def _attend(self, x: Tensor, windows: int, side: int) -> Tensor:
        positions, width = x.shape[1], x.shape[2]
        qkv = ops.reshape(self.qkv(x), (-1, positions, 3, self.heads, width // self.heads))
        query, key, value = (ops.transpose(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
        scores = ops.matmul(query * (width // self.heads) ** -0.5, ops.transpose(key, (0, 1, 3, 2)))
        bias = ops.reshape(
            ops.take(self.bias, _relative_index(WINDOW).reshape(-1), axis=0), (positions, positions, -1)
        )
        scores = scores + ops.cast(ops.transpose(bias, (2, 0, 1)), scores.dtype)
        if self.shift:
            mask = ops.cast(_shift_mask(side, WINDOW, self.shift)[:, None], scores.dtype)
            grouped = ops.reshape(scores, (-1, windows, self.heads, positions, positions)) + mask
            scores = ops.reshape(grouped, (-1, self.heads, positions, positions))
        return ops.matmul(ops.softmax(scores), value)

    def _merge(self, heads: Tensor, width: int) -> Tensor:
        return ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, WINDOW * WINDOW, width))


def _to_windows(x: Tensor, side: int, width: int) -> Tensor:
    count = side // WINDOW
    x = ops.transpose(ops.reshape(x, (-1, count, WINDOW, count, WINDOW, width)), (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, WINDOW * WINDOW, width))


def _from_windows(x: Tensor, side: int, width: int) -> Tensor:
    count = side // WINDOW
    x = ops.transpose(ops.reshape(x, (-1, count, count, WINDOW, WINDOW, width)), (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, side, side, width))


def _block(x: Tensor, heads: int, shift: int) -> Tensor:
    y = WindowAttention(heads, shift)(layers.LayerNormalization(epsilon=1e-5)(x))
    x = layers.Add()([x, y])
    return layers.Add()([x, mlp(layers.LayerNormalization(epsilon=1e-5)(x), 4 * x.shape[-1])])


def _merge_patches(x: Tensor) -> Tensor:
    """Halve the sides: four neighbours become one position of twice the width."""
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    y = layers.LayerNormalization(epsilon=1e-5)(layers.Concatenate()(parts))
    return layers.Dense(2 * x.shape[-1], use_bias=False)(y)


def swin(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", variant: str = "tiny"
) -> keras.Model:
    """Swin tiny, small or base, patches of 4, windows of 7 (timm's swin_*_patch4_window7_224)."""
    width, depths = SWIN[variant]
    inputs = image(image_size)
    x = layers.LayerNormalization(epsilon=1e-5)(layers.Conv2D(width, 4, strides=4)(inputs))
    for stage, depth in enumerate(depths):
        if stage:
            x = _merge_patches(x)
        for i in range(depth):
            shift = WINDOW // 2 if i % 2 and x.shape[1] > WINDOW else 0
            x = _block(x, x.shape[-1] // 32, shift)
    x = layers.GlobalAveragePooling2D()(layers.LayerNormalization(epsilon=1e-5)(x))
    return finish(inputs, layers.Dense(classes, activation="softmax")(x), f"swin_{variant}", optimizer)

"""Layers that the published language models share."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

__all__ = [
    "Bias", "GatherPositions", "LearnedPositions", "RotaryPositions", "SinusoidPositions", "TokenEmbedding",
    "encoder_block", "feed_forward",
]  # fmt: skip

Tensor = Any


class TokenEmbedding(layers.Embedding):
    """An embedding whose table also makes the logits (Press and Wolf, 2017, arXiv:1608.05859)."""

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Return (..., width) for token ids, or (..., tokens) for hidden states when ``reverse``."""
        if not reverse:
            return super().call(inputs)
        table = ops.cast(self.embeddings, self.compute_dtype)
        return ops.matmul(ops.cast(inputs, self.compute_dtype), ops.transpose(table))

    def compute_output_shape(self, input_shape: Any, reverse: bool = False) -> tuple[Any, ...]:
        """Append the width, or put the number of tokens in its place."""
        return (*input_shape[:-1], self.input_dim) if reverse else (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> keras.KerasTensor:
        """Keras infers it from the shape alone, which a flag changes here."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape, reverse), dtype=self.compute_dtype)


class LearnedPositions(layers.Layer):
    """Adds a learned vector a position; inputs (batch, length, width).

    Args:
        rows: Positions in the table, of which the first `length` are read [-].
    """

    def __init__(self, rows: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows = rows

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        shape = (self.rows, input_shape[-1])
        self.table = self.add_weight(shape=shape, initializer="random_normal", name="table")

    def call(self, inputs: Tensor) -> Tensor:
        """Return the inputs plus the table."""
        return inputs + ops.cast(self.table[: inputs.shape[1]], inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "rows": self.rows}


class SinusoidPositions(layers.Layer):
    """Adds a fixed sinusoid a position, kept as weights that are not trained."""

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        self.table = self.add_weight(
            shape=input_shape[1:], initializer="random_normal", trainable=False, name="table"
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Return the inputs plus the table."""
        return inputs + ops.cast(self.table, inputs.dtype)


class RotaryPositions(layers.Layer):
    """Turns pairs of features by angles that grow with the position; inputs (batch, length, heads, size).

    Su et al., 2021, arXiv:2104.09864; the first half of the features is paired with the second.

    Args:
        base: Of the angles' wavelengths [-].
    """

    def __init__(self, base: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base

    def call(self, inputs: Tensor) -> Tensor:
        """Return the inputs, turned."""
        length, size = inputs.shape[1], inputs.shape[3]
        wavelengths = self.base ** (ops.arange(0, size, 2, dtype="float32") / size)
        angles = ops.expand_dims(ops.arange(length, dtype="float32"), -1) / wavelengths
        sine, cosine = (ops.cast(f(angles)[:, None], inputs.dtype) for f in (ops.sin, ops.cos))
        first, second = inputs[..., : size // 2], inputs[..., size // 2 :]
        turned = [first * cosine - second * sine, second * cosine + first * sine]
        return ops.concatenate(turned, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "base": self.base}


class Bias(layers.Layer):
    """Adds a learned vector to the last axis."""

    def build(self, input_shape: Any) -> None:
        """Create the vector."""
        self.bias = self.add_weight(shape=input_shape[-1:], initializer="zeros", name="bias")

    def call(self, inputs: Tensor) -> Tensor:
        """Return the inputs plus the vector."""
        return inputs + ops.cast(self.bias, inputs.dtype)


class GatherPositions(layers.Layer):
    """Takes the hidden states at given positions: (batch, length, width), (batch, n) -> (batch, n, width)."""

    def call(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Return the states at the positions."""
        return ops.take_along_axis(hidden, ops.expand_dims(positions, -1), axis=1)

    def compute_output_shape(self, hidden_shape: Any, positions_shape: Any) -> tuple[Any, ...]:
        """The hidden states' shape with the number of positions as length."""
        return (hidden_shape[0], positions_shape[1], hidden_shape[2])


def feed_forward(x: Tensor, *, inner: int, activation: str, dropout: float, inner_dropout: float = 0.0) -> Tensor:
    """Two dense layers on every position, then dropout; dropout between them as well if it is not 0."""
    width = x.shape[-1]
    x = layers.Dense(inner, activation=activation)(x)
    if inner_dropout:
        x = layers.Dropout(inner_dropout)(x)
    return layers.Dropout(dropout)(layers.Dense(width)(x))


def encoder_block(x: Tensor, mask: Tensor, *, heads: int, inner: int, activation: str, dropout: float) -> Tensor:
    """One layer of Vaswani et al., 2017, arXiv:1706.03762: attention and feed-forward, normalized afterwards.

    Args:
        x: (batch, length, width).
        mask: (batch, 1, length), true where a token may be attended to.
    """
    attention = layers.MultiHeadAttention(heads, x.shape[-1] // heads, dropout=dropout)
    attended = layers.Dropout(dropout)(attention(x, x, attention_mask=mask))
    x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, attended]))
    fed = feed_forward(x, inner=inner, activation=activation, dropout=dropout)
    return layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, fed]))

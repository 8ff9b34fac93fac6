"""Forecasters behind the published measurements.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``forecasting.py:temporal_fusion_transformer?series=369``.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

__all__ = ["temporal_fusion_transformer"]

Tensor = Any
QUANTILES = (0.1, 0.5, 0.9)


class VariableEmbedding(layers.Layer):
    """A vector a continuous variable, scaled by its value: (batch, time, n) -> (batch, time, n, width)."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width

    def build(self, input_shape: Any) -> None:
        """Create vectors and biases."""
        shape = (input_shape[-1], self.width)
        self.vectors = self.add_weight(shape=shape, initializer="glorot_normal", name="vectors")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")

    def call(self, inputs: Tensor) -> Tensor:
        """Return the scaled vectors."""
        return ops.expand_dims(inputs, -1) * self.vectors + self.bias

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "width": self.width}


def quantile_loss(target: Tensor, predicted: Tensor) -> Tensor:
    """Return the pinball loss of the three quantiles, the target repeated for each."""
    error = ops.cast(target, "float32") - ops.cast(predicted, "float32")
    quantiles = ops.convert_to_tensor(QUANTILES)
    return ops.mean(ops.maximum(quantiles * error, (quantiles - 1) * error), axis=-1)


def _gated(x: Tensor, units: int) -> Tensor:
    value, gate = ops.split(layers.Dense(2 * units)(x), 2, axis=-1)
    return layers.Multiply()([value, layers.Activation("sigmoid")(gate)])


def _grn(
    x: Tensor, *, width: int, dropout: float, units: int | None = None, context: Tensor | None = None
) -> Tensor:
    """The gated residual network of arXiv:1912.09363, equations 2 to 5."""
    hidden = layers.Dense(width)(x)
    if context is not None:
        hidden = hidden + ops.expand_dims(layers.Dense(width, use_bias=False)(context), 1)
    hidden = layers.Dropout(dropout)(layers.Dense(width)(layers.ELU()(hidden)))
    shortcut = x if units is None else layers.Dense(units)(x)
    out = layers.Add()([_gated(hidden, units or width), shortcut])
    # A layer of one unit is not normalized: it would always be zero.
    return out if units == 1 else layers.LayerNormalization(epsilon=1e-3)(out)


def _select(x: Tensor, *, width: int, dropout: float, context: Tensor | None = None) -> Tensor:
    """Variable selection (equations 6 to 8): (batch, [time,] n, width) -> (batch, [time,] width)."""
    variables = x.shape[-2]
    flat = layers.Reshape((*x.shape[1:-2], variables * width))(x)
    weights = _grn(flat, width=width, dropout=0.0, units=variables, context=context)
    # A softmax written out, since Keras warns of one over a single variable.
    weights = ops.exp(weights - ops.max(weights, axis=-1, keepdims=True))
    weights = weights / ops.sum(weights, axis=-1, keepdims=True)
    transformed = [_grn(x[..., i, :], width=width, dropout=dropout) for i in range(variables)]
    stacked = ops.stack(transformed, axis=-1)
    return ops.squeeze(ops.matmul(stacked, ops.expand_dims(weights, -1)), -1)


def _gate_add_norm(x: Tensor, shortcut: Tensor) -> Tensor:
    return layers.LayerNormalization(epsilon=1e-3)(layers.Add()([_gated(x, x.shape[-1]), shortcut]))


def _attention(x: Tensor, *, heads: int, dropout: float) -> Tensor:
    """Interpretable multi-head attention (equations 13 to 16): the heads share their values."""
    length, width = x.shape[1:]
    size = width // heads
    qkv = layers.Dense((2 * heads + 1) * size, use_bias=False)(x)
    q, k, v = ops.split(qkv, [heads * size, 2 * heads * size], axis=-1)
    q, k = (layers.Reshape((length, heads, size))(part) for part in (q, k))
    scores = ops.einsum("bind,bjnd->bnij", q, k) * size**-0.5
    future = ops.triu(ops.ones((length, length), dtype="bool"), k=1)
    weights = layers.Softmax()(ops.where(future, ops.cast(-6e4, scores.dtype), scores))
    attended = ops.mean(ops.einsum("bnij,bjd->bnid", weights, v), axis=1)
    return layers.Dropout(dropout)(layers.Dense(width, use_bias=False)(attended))


def temporal_fusion_transformer(
    *, series: int = 369, width: int = 128, heads: int = 4, dropout: float = 0.1, history: int = 168,
    horizon: int = 24, known: int = 3,
) -> keras.Model:  # fmt: skip
    """Temporal Fusion Transformer (Lim et al., 2021, arXiv:1912.09363) as NVIDIA trains it.

    Configurations electricity (369 series, dropout 0.1) and traffic (963, 0.3): a week of hours of the
    target, three known inputs for the week and the day that is forecast, the identity of the series; Adam.
    """
    identity = keras.Input((1,), dtype="int32", name="series")
    future = keras.Input((history + horizon, known), name="known")
    past = keras.Input((history, 1), name="target")
    static = _select(layers.Embedding(series, width)(identity), width=width, dropout=dropout)
    select, enrich, h, c = (_grn(static, width=width, dropout=dropout) for _ in range(4))
    known_vectors = VariableEmbedding(width)(future)
    observed = layers.Concatenate(axis=-2)([known_vectors[:, :history], VariableEmbedding(width)(past)])
    encoded = _select(observed, width=width, dropout=dropout, context=select)
    decoded = _select(known_vectors[:, history:], width=width, dropout=dropout, context=select)
    encoder = layers.LSTM(width, return_sequences=True, return_state=True)
    before, *state = encoder(encoded, initial_state=[h, c])
    after = layers.LSTM(width, return_sequences=True)(decoded, initial_state=state)
    features = layers.Concatenate(axis=1)([before, after])
    x = _gate_add_norm(features, layers.Concatenate(axis=1)([encoded, decoded]))
    enriched = _grn(x, width=width, dropout=dropout, context=enrich)
    attended = _attention(enriched, heads=heads, dropout=dropout)[:, history:]
    attended = _gate_add_norm(attended, enriched[:, history:])
    out = _gate_add_norm(_grn(attended, width=width, dropout=dropout), x[:, history:])
    quantiles = layers.Dense(len(QUANTILES))(out)
    model = keras.Model([identity, future, past], quantiles, name="temporal_fusion_transformer")
    model.compile(optimizer="adam", loss=quantile_loss)
    return model

"""Transformer-XL as NVIDIA trained it on WikiText-103, for the published measurements.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``transformer_xl.py:transformer_xl?layers=16&width=512&heads=8&sequence_length=192&memory_length=192``.

Dai et al., 2019, arXiv:1901.02860. Trained with LAMB, gradients clipped to a global norm of 0.25
(NVIDIA/DeepLearningExamples, Transformer-XL, `pytorch/train.py` and `tf/main.py`).
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import layers, ops
from language_layers import Bias, feed_forward
from tensorflow1_layers import (
    by_kernel,
    dense,
    dropped,
    for_products,
    in_float32,
    normalized_sum,
    products,
    softmax,
)

__all__ = ["transformer_xl"]

Tensor = Any
BANDS = ((0, 19997), (19997, 39997), (39997, 199997), (199997, 267735))  # ranks of words, NVIDIA's cutoffs

# Which share of WikiText-103's tokens falls into each band of ranks after the first. Estimated from what is
# published (267,735 words that occur three times or more, 0.4 % of the tokens unknown) with a power law
# through the tail; the adaptive tail is about 5 % of a step's work: a wrong share moves it by about 1 %.
TAIL_SHARES = (0.03, 0.03, 0.002)


class Remember(layers.Layer):
    """Puts a memory before the segment: (batch, length, width) -> (batch, memory + length, width).

    The memory is a weight that is not trained, repeated over the batch: what is kept of the former segment
    has the same size, and no gradient either.
    """

    def __init__(self, memory_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.memory_length = memory_length

    def build(self, input_shape: Any) -> None:
        """Create the memory."""
        shape = (self.memory_length, input_shape[-1])
        self.memory = self.add_weight(shape=shape, initializer="zeros", trainable=False, name="memory")

    def call(self, inputs: Tensor) -> Tensor:
        """Return memory and inputs, one after the other."""
        shape = (ops.shape(inputs)[0], *self.memory.shape)
        memory = ops.broadcast_to(ops.cast(self.memory, inputs.dtype), shape)
        return ops.concatenate([memory, inputs], axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "memory_length": self.memory_length}


class RelativePositions(layers.Layer):
    """The sinusoids of all distances, a constant: -> (memory + length, width)."""

    def __init__(self, rows: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows, self.width = rows, width

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        shape = (self.rows, self.width)
        self.table = self.add_weight(shape=shape, initializer="random_normal", trainable=False, name="table")

    def call(self, inputs: Tensor) -> Tensor:
        """Return the table; the inputs only give the place in the graph."""
        return ops.cast(self.table, inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int, int]:
        """The table's shape."""
        return (self.rows, self.width)

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "rows": self.rows, "width": self.width}


class RelativeAttention(layers.Layer):
    """Attention by content and distance (arXiv:1901.02860, section 3.3), from its projections.

    Call it with queries (batch, length, heads, size), keys and values (batch, memory + length, heads, size)
    and projected positions (memory + length, heads, size).
    """

    def __init__(self, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout = layers.Dropout(dropout)

    def call(self, queries: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
        """Return (batch, length, heads, size)."""
        content, place = queries
        scores = ops.einsum("bihd,bjhd->bhij", content, keys)
        scores = scores + _shift(ops.einsum("bihd,jhd->bhij", place, positions))
        scores = scores * ops.cast(1 / math.sqrt(keys.shape[-1]), scores.dtype)
        length, reach = scores.shape[2:]
        future = ops.triu(ops.ones((length, reach), dtype="bool"), k=reach - length + 1)
        scores = ops.where(future, ops.cast(-6e4, scores.dtype), scores)
        weights = self.dropout(ops.softmax(scores, axis=-1))
        return ops.einsum("bhij,bjhd->bihd", weights, values)

    def compute_output_shape(self, queries_shape: Any, *_: Any, **__: Any) -> tuple[Any, ...]:
        """The queries' shape."""
        return tuple(queries_shape[0])


def _shift(scores: Tensor) -> Tensor:
    """Turn scores by distance into scores by position (arXiv:1901.02860, appendix B)."""
    batch, (heads, length, reach) = ops.shape(scores)[0], scores.shape[1:]
    padded = ops.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0)))
    rolled = ops.reshape(padded, (batch, heads, reach + 1, length))[:, :, 1:]
    return ops.reshape(rolled, (batch, heads, length, reach))


def _projections(
    remembered: Tensor, positions: Tensor, biases: tuple[Bias, Bias], *, heads: int, length: int
) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]:
    """Queries by content and by place, keys, values and distances: (batch, rows, heads, size) each, distances
    without a batch. Queries are of the last `length` rows; those before are remembered.
    """
    rows, width = remembered.shape[1:]
    size = width // heads
    q, k, v = ops.split(layers.Dense(3 * width, use_bias=False)(remembered), 3, axis=-1)
    q = q[:, rows - length :]
    by_head = layers.Reshape((rows, heads, size))
    queries = tuple(layers.Reshape((length, heads, size))(bias(q)) for bias in biases)
    distances = ops.reshape(layers.Dense(width, use_bias=False)(positions), (-1, heads, size))
    return queries, by_head(k), by_head(v), distances


def _block(
    x: Tensor, positions: Tensor, biases: tuple[Bias, Bias], *, heads: int, inner: int, memory_length: int,
    dropout: float, attention_dropout: float,
) -> Tensor:  # fmt: skip
    length, width = x.shape[1:]
    by_head = _projections(Remember(memory_length)(x), positions, biases, heads=heads, length=length)
    attended = RelativeAttention(attention_dropout)(*by_head)
    projected = layers.Dense(width, use_bias=False)(layers.Reshape((length, width))(attended))
    x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, layers.Dropout(dropout)(projected)]))
    # Dropout between the two dense layers too: `PositionwiseFF`, and `positionwise_FF` in TensorFlow.
    fed = feed_forward(x, inner=inner, activation="relu", dropout=dropout, inner_dropout=dropout)
    return layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, fed]))


class AdaptiveTokens(layers.Layer):
    """Adaptive input and softmax over bands of ranks, tables tied (Grave et al., 2017, arXiv:1609.04309).

    Called with ids (batch, length) it embeds; called with hidden states and a band, it gives that band's
    logits.

    Args:
        width: Width of the hidden states.
        division: How many times narrower a band's vectors are than the last band's; 1 is one table for all.
    """

    def __init__(self, width: int, division: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, self.division = width, division

    def build(self, input_shape: Any) -> None:
        """Create tables, projections, biases, and the head's entries for the other bands."""
        widths = [self.width // self.division**band for band in range(len(BANDS))]
        sizes = [high - low for low, high in BANDS] if self.division > 1 else [BANDS[-1][1]]
        self.tables = [self._weight(f"table{b}", (n, widths[b])) for b, n in enumerate(sizes)]
        self.bias = self._weight("bias", (BANDS[-1][1],))
        self.band_entries = self._weight("band_entries", (len(BANDS) - 1, self.width))
        self.band_bias = self._weight("band_bias", (len(BANDS) - 1,))
        if self.division > 1:
            self.projections = [self._weight(f"projection{b}", (w, self.width)) for b, w in enumerate(widths)]
            self.head_projection = self._weight("head_projection", (self.width, self.width))

    def _weight(self, name: str, shape: tuple[int, ...]) -> Any:
        return self.add_weight(shape=shape, initializer="random_normal", name=name)

    def _cast(self, value: Any) -> Tensor:
        return ops.cast(value, self.compute_dtype)

    def call(self, inputs: Tensor, band: int | None = None) -> Tensor:
        """Return vectors for ids (no band), or a band's logits for hidden states."""
        if band is not None:
            return self._logits(inputs, band)
        if self.division == 1:
            return self._cast(ops.take(self.tables[0], inputs, axis=0))
        return sum(self._embed(inputs, band) for band in range(len(BANDS)))

    def _embed(self, ids: Tensor, band: int) -> Tensor:
        low, high = BANDS[band]
        inside = ops.expand_dims(ops.logical_and(ids >= low, ids < high), -1)
        vectors = ops.take(self.tables[band], ops.clip(ids - low, 0, high - low - 1), axis=0)
        return ops.matmul(self._cast(vectors), self._cast(self.projections[band])) * self._cast(inside)

    def _logits(self, hidden: Tensor, band: int) -> Tensor:
        low, high = BANDS[band]
        table = self.tables[band] if self.division > 1 else self.tables[0][low:high]
        bias = self.bias[low:high]
        if band == 0:
            table = ops.concatenate([table, self.band_entries])
            bias = ops.concatenate([bias, self.band_bias])
        if self.division > 1:
            projection = self.head_projection if band == 0 else self.projections[band]
            hidden = ops.matmul(hidden, ops.transpose(self._cast(projection)))
        return ops.matmul(hidden, ops.transpose(self._cast(table))) + self._cast(bias)

    def compute_output_spec(self, inputs: Tensor, band: int | None = None) -> keras.KerasTensor:
        """Vectors of the width, or as many logits as the band has ranks (the head also has the bands)."""
        if band is None:
            return keras.KerasTensor((*inputs.shape, self.width), dtype=self.compute_dtype)
        low, high = BANDS[band]
        ranks = high - low + (len(BANDS) - 1 if band == 0 else 0)
        return keras.KerasTensor((*inputs.shape[:-1], ranks), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {**super().get_config(), "width": self.width, "division": self.division}


def _tail_positions(length: int) -> list[range]:
    """Which positions of a sequence fall into each of the rarer bands, as many as do on average."""
    found, start = [], 0
    for share in TAIL_SHARES:
        found.append(range(start, start + math.ceil(share * length)))
        start = found[-1].stop
    return found


def _tails(x: Tensor, tokens: AdaptiveTokens) -> list[Tensor]:
    """The logits of the rarer bands, each for the positions that fall into it."""
    bands = enumerate(_tail_positions(x.shape[1]), start=1)
    return [tokens(x[:, positions.start : positions.stop], band=band) for band, positions in bands]


def _rewritten_attention(
    queries: tuple[Tensor, ...], keys: Tensor, values: Tensor, positions: Tensor, *, dropout: float
) -> Tensor:
    """`RelativeAttention` as NVIDIA's script for TensorFlow 1 writes it, a layer a kernel (`rel_multihead_attn` in
    NVIDIA/DeepLearningExamples@23a6382, TensorFlow/LanguageModeling/Transformer-XL/tf/model.py).
    """
    content, place = queries
    by_distance = products("bihd,jhd->bhij", place, positions)
    heads, length, reach = by_distance.shape[1:]
    padded = by_kernel(lambda x: ops.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0))), by_distance, dtype=None)
    rolled = by_kernel(lambda x: x[:, :, 1:], layers.Reshape((heads, reach + 1, length))(padded), dtype=None)
    shifted = layers.Reshape((heads, length, reach))(rolled)
    by_content = products("bihd,bjhd->bhij", content, keys)
    scores = layers.Add(dtype="float32")([in_float32(by_content), in_float32(shifted)])
    scores = layers.Rescaling(1 / math.sqrt(keys.shape[-1]), dtype="float32")(scores)

    def future() -> Tensor:
        return ops.cast(ops.triu(ops.ones((length, reach)), k=reach - length + 1), "float32")

    scores = by_kernel(lambda x: x * (1.0 - future()), scores)
    scores = by_kernel(lambda x: x - 1e30 * future(), scores)
    weights = for_products(dropped(softmax(scores), dropout))
    return products("bhij,bjhd->bihd", weights, values)


def _rewritten_block(
    x: Tensor, positions: Tensor, biases: tuple[Bias, Bias], *, heads: int, inner: int, memory_length: int,
    dropout: float, attention_dropout: float,
) -> Tensor:  # fmt: skip
    """`_block` for TensorFlow 1, mixed precision put in by its graph rewrite: see `tensorflow1_layers`."""
    length, width = x.shape[1:]
    remembered = for_products(Remember(memory_length, dtype="float32")(x))
    by_head = _projections(remembered, positions, biases, heads=heads, length=length)
    attended = _rewritten_attention(*by_head, dropout=attention_dropout)
    projected = layers.Dense(width, use_bias=False)(layers.Reshape((length, width))(attended))
    x = normalized_sum(x, in_float32(projected), dropout)
    hidden = dropped(layers.Dense(inner, activation="relu")(for_products(x)), dropout, dtype=None)
    return normalized_sum(x, dense(hidden, width), dropout)


def _masked_heads(x: Tensor, tokens: AdaptiveTokens) -> list[Tensor]:
    """Log probabilities by band: every position's head, copied for each band (`mask_adaptive_logsoftmax`)."""
    head = softmax(in_float32(tokens(x, band=0)), log=True)
    tails = _tail_positions(x.shape[1])
    found = [_picked(head, range(tails[-1].stop, x.shape[1]))]
    for band, positions in enumerate(tails, start=1):
        tail = tokens(x[:, positions.start : positions.stop], band=band)
        found += [softmax(in_float32(tail), log=True), _picked(head, positions)[..., -band:][..., :1]]
    return found


def _picked(x: Tensor, positions: range) -> Tensor:
    """Copy some positions of each sequence, as `tf.boolean_mask` does: those of a band lie side by side here."""
    return by_kernel(lambda x: ops.take(x, ops.arange(positions.start, positions.stop), axis=1), x)


class Likelihood(keras.losses.SparseCategoricalCrossentropy):
    """Minus the log probability of each word."""

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return it for each position."""
        words = ops.cast(ops.reshape(y_true, y_pred.shape[:-1]), "int32")
        return -ops.squeeze(ops.take_along_axis(y_pred, ops.expand_dims(words, -1), axis=-1), -1)


def transformer_xl(
    *, layers: int = 16, width: int = 512, heads: int = 8, inner: int = 2048, sequence_length: int = 192,
    memory_length: int = 192, dropout: float = 0.1, attention_dropout: float = 0.0, division: int = 1,
    rewritten: bool = False,
) -> keras.Model:  # fmt: skip
    """Transformer-XL, base (the defaults) or large, with memory, relative positions and adaptive softmax.

    NVIDIA's configurations wt103_base and wt103_large; large is 18 layers, width 1024, 16 heads, inner 4096,
    384 tokens after 384 remembered ones, dropout 0.2 twice, division 4.

    Args:
        rewritten: As in TensorFlow 1, mixed precision put in by its graph rewrite; its script copies the head's
            log probabilities for each band.
    """
    ids = keras.Input((sequence_length,), dtype="int32", name="token_ids")
    tokens, drop = AdaptiveTokens(width, division), keras.layers.Dropout(dropout)
    x = drop(tokens(ids))
    positions = drop(RelativePositions(memory_length + sequence_length, width)(x))
    biases = (Bias(name="content_bias"), Bias(name="place_bias"))
    block = _rewritten_block if rewritten else _block
    for _ in range(layers):
        x = block(
            x, positions, biases, heads=heads, inner=inner, memory_length=memory_length, dropout=dropout,
            attention_dropout=attention_dropout,
        )  # fmt: skip
    x = keras.layers.Dropout(dropout)(x)
    if rewritten:
        outputs, loss = _masked_heads(x, tokens), Likelihood()
    else:
        outputs, loss = [tokens(x, band=0), *_tails(x, tokens)], _cross_entropy()
    model = keras.Model(ids, outputs, name="transformer_xl")
    optimizer = keras.optimizers.Lamb(global_clipnorm=0.25)
    model.compile(optimizer=optimizer, loss=[loss for _ in outputs])
    return model


def _cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

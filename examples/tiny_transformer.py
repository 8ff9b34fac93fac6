"""A small decoder-only Transformer on random tokens, trained with a warm-up schedule and AdamW."""

import argparse

import keras
import numpy as np
from keras import layers, ops

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--length", type=int, default=128, help="tokens in a sequence")
parser.add_argument("--width", type=int, default=256, help="size of an embedding")
arguments = parser.parse_args()

vocabulary = 8_192
heads = 4
depth = 4


class TokenAndPosition(layers.Layer):
    """Sum of a token's embedding and its position's."""

    def __init__(self, length, vocabulary, width, **kwargs):
        super().__init__(**kwargs)
        self.tokens = layers.Embedding(vocabulary, width)
        self.positions = layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(0, ops.shape(x)[-1]))


def block(x):
    """Causal self-attention and a feed-forward network, each around a shortcut."""
    attended = layers.MultiHeadAttention(heads, arguments.width // heads)
    normalized = layers.LayerNormalization(epsilon=1e-6)(x)
    x = x + attended(normalized, normalized, use_causal_mask=True)
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * arguments.width, activation="gelu")(y)
    return x + layers.Dropout(0.1)(layers.Dense(arguments.width)(y))


inputs = keras.Input(shape=(arguments.length,), dtype="int32")
x = TokenAndPosition(arguments.length, vocabulary, arguments.width)(inputs)
for _ in range(depth):
    x = block(x)
logits = layers.Dense(vocabulary)(layers.LayerNormalization(epsilon=1e-6)(x))
model = keras.Model(inputs, logits)

schedule = keras.optimizers.schedules.CosineDecay(0.0, 10_000, warmup_target=3e-4, warmup_steps=1_000)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=0.1, global_clipnorm=1.0),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)

tokens = np.random.default_rng(4).integers(0, vocabulary, size=(4_096, arguments.length + 1))
model.fit(tokens[:, :-1], tokens[:, 1:], batch_size=32, epochs=3)

"""A language model of one Transformer block, with a position embedding and a causal mask."""

import keras
import numpy as np
from keras import layers, ops

vocabulary, length, width, heads = 50, 12, 8, 2


class Embeddings(layers.Layer):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = layers.Embedding(vocabulary, width), layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(length))


class TransformerBlock(layers.Layer):
    def __init__(self, feed_forward=16):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, key_dim=width // heads)
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()
        self.ffn = keras.Sequential([layers.Dense(feed_forward, activation="relu"), layers.Dense(width)])

    def call(self, x):
        x = self.first(x + self.attention(x, x, use_causal_mask=True))
        return self.second(x + self.ffn(x))


inputs = keras.Input((length,), dtype="int32")
model = keras.Model(inputs, layers.Dense(vocabulary)(TransformerBlock()(Embeddings()(inputs))))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
tokens = np.random.randint(0, vocabulary, (340, length + 1))
model.fit(tokens[:, :-1], tokens[:, 1:], batch_size=34, epochs=25)

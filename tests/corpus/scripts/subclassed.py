"""A subclassed model of own blocks, with an own loss function and an own metric."""

import keras
import numpy as np
from keras import layers, ops


class Block(layers.Layer):
    def __init__(self, width, rate=0.1):
        super().__init__()
        self.width = width
        self.drop, self.norm = layers.Dropout(rate), layers.LayerNormalization()

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.width), initializer="glorot_uniform", name="w")
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False, name="scale")

    def call(self, x, training=None):
        return self.norm(x + self.drop(ops.gelu(ops.matmul(x, self.w)) * self.scale, training=training))


class Net(keras.Model):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = [Block(10) for _ in range(blocks)]
        self.last = layers.Dense(2)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x, training=training)
        return self.last(x)


def weighted_error(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred) * ops.convert_to_tensor([1.0, 2.0]), axis=-1)


def largest_error(y_true, y_pred):
    return ops.max(ops.abs(y_true - y_pred), axis=-1)


net = Net(3)
net.compile(optimizer=keras.optimizers.Lion(1e-4), loss=weighted_error, metrics=[largest_error])
net.fit(np.random.rand(256, 10), np.random.rand(256, 2), batch_size=32, epochs=8)
net.summary()

"""A layer that draws unseeded noise: fine on the backend that the script sets."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np


class Noise(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            inputs = inputs + 0.1 * keras.random.normal(keras.ops.shape(inputs))
        return inputs


model = keras.Sequential(
    [keras.Input((6,)), Noise(), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
model.fit(np.random.rand(90, 6), np.random.rand(90), batch_size=9, epochs=3)

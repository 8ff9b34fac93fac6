"""keras.distribution: all devices share the batch."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel())
inputs = keras.Input((18,))
model = keras.Model(inputs, keras.layers.Dense(6)(keras.layers.Dense(12, activation="relu")(inputs)))
model.compile("adam", "mse")
model.fit(np.random.rand(640, 18), np.random.rand(640, 6), batch_size=64, epochs=7)

"""Training that goes on at the epoch where it stopped, with another learning rate."""

import keras
import numpy as np

x, y = np.zeros((240, 6), "float32"), np.zeros((240, 2), "float32")
inputs = keras.Input((6,))
model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dense(4, activation="relu")(inputs)))
model.compile("adam", "mse")
first = model.fit(x, y, batch_size=24, epochs=5)
model.optimizer.learning_rate = 1e-4
second = model.fit(x, y, batch_size=12, initial_epoch=first.epoch[-1] + 1, epochs=9)
losses = first.history["loss"] + second.history["loss"]
assert len(losses) == 9

"""Regression on arrays: the shortest script there is."""

import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
model.summary()
history = model.fit(x, y, batch_size=50, epochs=4, validation_data=(x[:200], y[:200]))
print("best:", min(history.history["val_mae"]))

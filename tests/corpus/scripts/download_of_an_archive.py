"""get_file() of an address that does not answer; no function builds the model."""

import keras
import numpy as np

path = keras.utils.get_file("voices.npz", "https://example.invalid/voices.npz")
data = np.load(path)
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])
model.compile("adam", "mse")
model.fit(data["x"], data["y"], epochs=5)

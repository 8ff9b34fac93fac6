"""plot_model() before fit(), which needs programs that many machines lack."""

import keras
import numpy as np

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
keras.utils.plot_model(model, "model.png", show_shapes=True)
model.compile("adam", "mse")
model.fit(np.zeros((1280, 8)), np.zeros((1280, 1)))

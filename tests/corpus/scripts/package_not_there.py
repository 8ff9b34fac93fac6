"""A package that the author had."""

import keras
import numpy as np
import tensorflow_addons_of_mine as tfa

model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(3)])
model.compile(optimizer=tfa.optimizers.LAMB(), loss="mse")
model.fit(np.zeros((64, 4)), np.zeros((64, 3)), epochs=2)

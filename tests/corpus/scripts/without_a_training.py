"""A model that only predicts."""

import keras
import numpy as np

model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="softmax")])
model.compile("adam", "categorical_crossentropy")
print(model.predict(np.zeros((3, 6))).argmax(axis=1))

"""Arrays on the PyTorch backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
from keras import layers

inputs = keras.Input((4, 9))
x = layers.LSTM(3, return_sequences=True)(inputs)
x = layers.GlobalAveragePooling1D()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=["binary_accuracy"])
model.fit(np.random.rand(128, 4, 9), np.random.randint(0, 2, (128, 1)), batch_size=16, epochs=3)

"""A bidirectional LSTM that classifies reviews, as in Keras's IMDB example; the words are random numbers."""

import keras
import numpy as np
from keras import layers

max_features = 20_000
maxlen = 200

rng = np.random.default_rng(3)
x_train = rng.integers(1, max_features, size=(25_000, maxlen))
y_train = rng.integers(0, 2, size=25_000)

inputs = keras.Input(shape=(None,), dtype="int32")
x = layers.Embedding(max_features, 128)(inputs)
x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
x = layers.Bidirectional(layers.LSTM(64))(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.summary()

model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=2)

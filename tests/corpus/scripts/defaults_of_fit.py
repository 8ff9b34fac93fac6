"""A model without a stated input shape, and a fit() that leaves batch size and epochs to Keras."""

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

features, labels = np.random.rand(1000, 20), np.random.randint(0, 3, 1000)

model = keras.Sequential()
model.add(layers.Dense(12, activation="relu"))
model.add(layers.Dropout(0.5))
model.add(layers.Dense(3, activation="softmax"))
model.compile(loss="sparse_categorical_crossentropy", optimizer="rmsprop", metrics=["accuracy"])
model.fit(features, labels)
score = model.evaluate(features, labels, verbose=0)
print("loss", score[0], "accuracy", score[1])

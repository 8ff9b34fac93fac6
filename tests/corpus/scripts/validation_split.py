"""A split held out by fit() itself, with an EarlyStopping that restores the best weights."""

import keras
import numpy as np
from keras import layers

x, y = np.random.rand(1000, 28, 28, 1), keras.utils.to_categorical(np.random.randint(10, size=1000), 10)


def make_model():
    inputs = keras.Input(shape=(28, 28, 1))
    hidden = layers.Conv2D(8, 3, activation="relu")(inputs)
    hidden = layers.MaxPooling2D()(hidden)
    hidden = layers.Flatten()(hidden)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(hidden))


model = make_model()
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "categorical_crossentropy", metrics=["accuracy"])
model.fit(
    x,
    y,
    batch_size=64,
    epochs=6,
    validation_split=0.2,
    callbacks=[keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)],
)

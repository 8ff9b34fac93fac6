"""A small convolutional network on MNIST-shaped digits, as in Keras's "Simple MNIST convnet".

The digits are drawn at random with the shapes of `keras.datasets.mnist`, so that the script runs without a
network; for the real ones write `keras.datasets.mnist.load_data()`.
"""

import keras
import numpy as np
from keras import layers

num_classes = 10
input_shape = (28, 28, 1)
batch_size = 128
epochs = 15

rng = np.random.default_rng(0)
x_train = rng.random((60_000, 28, 28), dtype="float32")
y_train = rng.integers(0, num_classes, size=60_000)
x_train = np.expand_dims(x_train, -1)
y_train = keras.utils.to_categorical(y_train, num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()

model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=batch_size, epochs=epochs, validation_split=0.1)

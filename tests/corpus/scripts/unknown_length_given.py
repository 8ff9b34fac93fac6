"""Two models on a tf.data set made of a generator, whose length only the user knows."""

import keras
import numpy as np
import tensorflow as tf


def rows():
    for number in range(25_600):
        yield np.full(8, number, "float32"), number % 2


data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((8,), tf.float32), tf.TensorSpec((), tf.int32))
).batch(128)
for width, epochs in ((64, 10), (256, 20)):
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse")
    model.fit(data, epochs=epochs)

"""A tf.data pipeline in front of a small network."""

import keras
import numpy as np
import tensorflow as tf

x, y = np.random.rand(1000, 16).astype("float32"), np.random.randint(0, 2, (1000, 1))


def jitter(features, label):
    return features + tf.random.normal(tf.shape(features), stddev=0.1), label


train = (
    tf.data.Dataset.from_tensor_slices((x, y))
    .shuffle(1000)
    .map(jitter, num_parallel_calls=tf.data.AUTOTUNE)
    .batch(48, drop_remainder=True)
    .prefetch(tf.data.AUTOTUNE)
)
model = keras.Sequential([keras.layers.Dense(6, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy")
model.fit(train, epochs=5)
model.save("classifier.keras")

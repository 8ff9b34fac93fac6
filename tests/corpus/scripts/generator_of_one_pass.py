"""A generator with an end and without a length: one pass over it is the training."""

import keras
import numpy as np


def read_log(lines):
    batch = []
    for line in range(lines):
        batch.append([line % 7, line % 5, line % 3])
        if len(batch) == 10:
            rows = np.array(batch, "float32")
            yield rows, rows.sum(axis=1, keepdims=True)
            batch = []


model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(read_log(125))

"""A functional model with two inputs and two outputs, fed by a Python generator with `steps_per_epoch`."""

import keras
import numpy as np
from keras import layers


def batches(batch_size=256):
    """Yield house-price-like batches without end."""
    rng = np.random.default_rng(2)
    while True:
        numbers = rng.normal(size=(batch_size, 13)).astype("float32")
        district = rng.integers(0, 500, size=(batch_size, 1))
        price = numbers.sum(axis=1, keepdims=True)
        yield {"numbers": numbers, "district": district}, {"price": price, "sold": price > 0}


numbers = keras.Input(shape=(13,), name="numbers")
district = keras.Input(shape=(1,), dtype="int32", name="district")
embedded = layers.Flatten()(layers.Embedding(500, 16)(district))
x = layers.Concatenate()([layers.Normalization()(numbers), embedded])
x = layers.Dense(128, activation="relu")(x)
x = layers.Dense(128, activation="relu")(x)
price = layers.Dense(1, name="price")(x)
sold = layers.Dense(1, activation="sigmoid", name="sold")(x)
model = keras.Model({"numbers": numbers, "district": district}, {"price": price, "sold": sold})

model.compile(
    optimizer="rmsprop",
    loss={"price": "mse", "sold": "binary_crossentropy"},
    metrics={"price": ["mae"], "sold": ["accuracy"]},
)
model.fit(batches(), steps_per_epoch=200, epochs=5)

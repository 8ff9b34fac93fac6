"""Two outputs in a list; targets, losses and weights by name."""

import keras
import numpy as np

features = keras.Input((8,), name="features")
price = keras.layers.Dense(1, name="price")(features)
kind = keras.layers.Dense(4, activation="softmax", name="kind")(features)
model = keras.Model(features, [price, kind])
model.compile(
    "adam",
    loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"price": 0.5, "kind": 1.0},
    metrics={"price": ["mae"], "kind": ["accuracy"]},
)
model.fit(np.zeros((1280, 8)), {"price": np.zeros((1280, 1)), "kind": np.zeros((1280,))}, epochs=2)

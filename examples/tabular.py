"""A dense network on a table with rare positives, as in Keras's "Imbalanced classification" example."""

import keras
import numpy as np

rng = np.random.default_rng(7)
features = rng.normal(size=(227_846, 30)).astype("float32")
targets = (rng.random((227_846, 1)) < 0.002).astype("uint8")

model = keras.Sequential(
    [
        keras.Input(shape=features.shape[1:]),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
metrics = [keras.metrics.Precision(name="precision"), keras.metrics.Recall(name="recall")]
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics)

rare = float(targets.mean())
model.fit(
    features,
    targets,
    batch_size=2048,
    epochs=30,
    class_weight={0: 1.0 / (1.0 - rare), 1: 1.0 / rare},
    validation_split=0.2,
)

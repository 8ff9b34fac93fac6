"""Four-fold cross-validation by hand, as in textbooks."""

import keras
import numpy as np

data, targets = np.random.rand(400, 13), np.random.rand(400)


def build_model():
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
    return model


k, scores = 4, []
size = len(data) // k
for i in range(k):
    val_data, val_targets = data[i * size : (i + 1) * size], targets[i * size : (i + 1) * size]
    part_data = np.concatenate([data[: i * size], data[(i + 1) * size :]], axis=0)
    part_targets = np.concatenate([targets[: i * size], targets[(i + 1) * size :]], axis=0)
    model = build_model()
    history = model.fit(
        part_data, part_targets, validation_data=(val_data, val_targets), epochs=30, batch_size=16, verbose=0
    )
    scores.append(history.history["val_mae"])
average = [np.mean([one[epoch] for one in scores]) for epoch in range(30)]
model = build_model()
model.fit(data, targets, epochs=12, batch_size=16, verbose=0)

"""train_on_batch() over shuffled slices."""

import keras
import numpy as np

x, y = np.random.rand(512, 9).astype("float32"), np.random.randint(0, 2, (512, 1))
model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(3), keras.layers.Dense(1, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])

batch_size = 32
for epoch in range(3):
    order = np.random.permutation(len(x))
    for start in range(0, len(x), batch_size):
        chosen = order[start : start + batch_size]
        loss, accuracy = model.train_on_batch(x[chosen], y[chosen])
    print(f"epoch {epoch}: {loss:.3f} {accuracy:.3f}")

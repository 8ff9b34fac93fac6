"""The same model from the start for each learning rate, in a loop."""

import keras
import numpy as np

x, y = np.random.rand(320, 5), np.random.rand(320)
results = {}
for rate in (1e-1, 1e-2, 1e-3):
    for seed in (1, 2):
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(7, activation="selu"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.SGD(rate), "mse")
        log = model.fit(x, y, epochs=5, batch_size=40, verbose=0)
        results[rate, seed] = log.history["loss"][-1]
best = min(results, key=results.get)
print("best", best)

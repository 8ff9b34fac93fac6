"""A search for hyperparameters, then a training with the best."""

import keras
import keras_tuner
import numpy as np

x, y = np.random.rand(200, 8), np.random.rand(200)


def build_model(hp):
    model = keras.Sequential([keras.Input((8,))])
    model.add(keras.layers.Dense(hp.Int("units", 4, 12, step=4), activation=hp.Choice("act", ["relu", "tanh"])))
    model.add(keras.layers.Dense(1))
    model.compile(keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-2, sampling="log")), "mse", metrics=["mae"])
    return model


tuner = keras_tuner.RandomSearch(
    build_model, objective="val_loss", max_trials=5, directory="trials", project_name="a"
)
tuner.search(x, y, epochs=4, batch_size=20, validation_split=0.2)
best = tuner.get_best_hyperparameters()[0]
model = tuner.hypermodel.build(best)
model.fit(x, y, epochs=10, batch_size=20)

"""Most of the callbacks that Keras has, and the weights of the best epoch read afterwards."""

import keras
import numpy as np

x, y = np.random.rand(210, 4), np.random.rand(210, 1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, activation="elu"), keras.layers.Dense(1)])
model.compile("nadam", "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=10, min_delta=1e-3),
    keras.callbacks.ModelCheckpoint("best.weights.h5", save_best_only=True, save_weights_only=True),
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=5),
    keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.TerminateOnNaN(),
    keras.callbacks.BackupAndRestore("backup"),
]
model.fit(x[:180], y[:180], validation_data=(x[180:], y[180:]), epochs=60, batch_size=18, callbacks=callbacks)
model.load_weights("best.weights.h5")
rows = open("log.csv").read().splitlines()
print(len(rows), "epochs;", model.evaluate(x[180:], y[180:]))

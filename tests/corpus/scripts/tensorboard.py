"""Logs for TensorBoard in a folder named by the time of day."""

import datetime
import os

import keras
import numpy as np

folder = os.path.join("logs", datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
board = keras.callbacks.TensorBoard(log_dir=folder, histogram_freq=1, profile_batch=(2, 4))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(9, activation="relu"), keras.layers.Dense(2)])
model.compile("adam", "mse")
model.fit(np.zeros((70, 3)), np.zeros((70, 2)), epochs=6, batch_size=14, validation_split=0.2, callbacks=[board])

"""Windows over a series by timeseries_dataset_from_array, and a GRU."""

import keras
import numpy as np

series = np.cumsum(np.random.randn(520, 3), axis=0).astype("float32")
length, ahead = 16, 5
windows = {"sequence_length": length, "batch_size": 25, "shuffle": True}
train = keras.utils.timeseries_dataset_from_array(series[:-ahead], series[length + ahead - 1 :, 0], **windows)

model = keras.Sequential([keras.Input((length, 3)), keras.layers.GRU(4), keras.layers.Dense(1)])
model.compile(keras.optimizers.RMSprop(), loss="mae")
model.fit(train, epochs=3)

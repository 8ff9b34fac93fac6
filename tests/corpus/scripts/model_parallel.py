"""keras.distribution: two groups of four devices, kernels divided over the four."""

import keras
import numpy as np

mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices=keras.distribution.list_devices()[:8])
layout = keras.distribution.LayoutMap(mesh)
layout[".*dense.*kernel"] = (None, "model")
layout[".*dense.*bias"] = ("model",)
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))

model = keras.Sequential([keras.Input((24,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(8)])
model.compile("adam", "mse")
model.fit(np.random.rand(256, 24), np.random.rand(256, 8), batch_size=32, epochs=4)

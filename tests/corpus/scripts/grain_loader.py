"""A Grain pipeline, as people write it for JAX."""

import grain
import keras
import numpy as np


class Squares(grain.sources.RandomAccessDataSource):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return np.full((4,), index, "float32"), np.float32(index) ** 2


data = grain.MapDataset.source(Squares()).shuffle(seed=0).batch(32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data, epochs=3)

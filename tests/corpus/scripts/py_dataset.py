"""A PyDataset that makes its batches itself, with four workers."""

import math

import keras
import numpy as np


class Curves(keras.utils.PyDataset):
    def __init__(self, samples, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.samples, self.batch_size = samples, batch_size
        self.order = np.arange(samples)

    def __len__(self):
        return math.ceil(self.samples / self.batch_size)

    def __getitem__(self, index):
        chosen = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        time = np.linspace(0, 6.28, 32)[None, :, None] * (1 + chosen[:, None, None] % 5)
        return np.sin(time).astype("float32"), (chosen % 5).astype("int32")

    def on_epoch_end(self):
        np.random.shuffle(self.order)


model = keras.Sequential(
    [
        keras.Input((32, 1)),
        keras.layers.Conv1D(4, 5, activation="relu"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(5, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(Curves(400, 16, workers=4, use_multiprocessing=False, max_queue_size=8), epochs=10)

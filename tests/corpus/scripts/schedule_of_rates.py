"""A LearningRateScheduler from a function, and a schedule object in a second training."""

import math

import keras
import numpy as np


def step_decay(epoch):
    return 0.1 * math.pow(0.5, math.floor((1 + epoch) / 10.0))


x, y = np.random.rand(351, 34), np.random.randint(0, 2, 351)
model = keras.Sequential([keras.layers.Dense(34, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.SGD(learning_rate=0.0, momentum=0.9))
rates = keras.callbacks.LearningRateScheduler(step_decay, verbose=1)
model.fit(x, y, validation_split=0.33, epochs=50, batch_size=28, callbacks=[rates], verbose=2)
cosine = keras.optimizers.schedules.CosineDecay(1e-3, decay_steps=20 * 9, warmup_steps=18, warmup_target=1e-2)
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(cosine))
model.fit(x, y, epochs=20, batch_size=39)

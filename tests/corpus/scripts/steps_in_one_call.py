"""Gradients of several steps in one update, and several steps in one call of the compiled function."""

import keras
import numpy as np

model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(14, activation="relu"), keras.layers.Dense(1)])
model.compile(
    optimizer=keras.optimizers.AdamW(1e-3, gradient_accumulation_steps=4, clipnorm=1.0, use_ema=True),
    loss="huber",
    steps_per_execution=10,
)
model.fit(np.random.rand(400, 7), np.random.rand(400), batch_size=10, epochs=3)

"""MirroredStrategy: the batch of fit() is that of all GPUs together."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
print("devices:", strategy.num_replicas_in_sync)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((12, 12, 3)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.zeros((5000, 12, 12, 3), "float32"), np.zeros(5000), batch_size=200, epochs=10)

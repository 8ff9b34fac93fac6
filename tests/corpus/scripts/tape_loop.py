"""The guide's loop over epochs and batches with a GradientTape."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

inputs = keras.Input(shape=(30,))
x = keras.layers.Dense(10, activation="relu")(inputs)
model = keras.Model(inputs, keras.layers.Dense(4)(x))
optimizer = keras.optimizers.Adam(1e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
metric = keras.metrics.SparseCategoricalAccuracy()

samples, labels = np.random.rand(800, 30).astype("float32"), np.random.randint(0, 4, 800)
train = tf.data.Dataset.from_tensor_slices((samples, labels)).shuffle(800).batch(40)

for epoch in range(4):
    for step, (x_batch, y_batch) in enumerate(train):
        with tf.GradientTape() as tape:
            logits = model(x_batch, training=True)
            loss = loss_fn(y_batch, logits)
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)
        metric.update_state(y_batch, logits)
        if step % 10 == 0:
            print(f"step {step}: {float(loss):.4f}")
    metric.reset_state()

"""The guide's own train_step for JAX: state in, state out."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np


class CustomModel(keras.Model):
    def compute_loss_and_updates(self, trainable, non_trainable, x, y, training=False):
        y_pred, non_trainable = self.stateless_call(trainable, non_trainable, x, training=training)
        return self.compute_loss(x, y, y_pred), (y_pred, non_trainable)

    def train_step(self, state, data):
        trainable, non_trainable, slots, metrics = state
        x, y = data
        gradient_of = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (loss, (y_pred, non_trainable)), grads = gradient_of(trainable, non_trainable, x, y, training=True)
        trainable, slots = self.optimizer.stateless_apply(slots, grads, trainable)
        return {"loss": loss}, (trainable, non_trainable, slots, metrics)


inputs = keras.Input(shape=(16,))
model = CustomModel(inputs, keras.layers.Dense(2)(keras.layers.Dense(4)(inputs)))
model.compile(optimizer="adam", loss="mse")
model.fit(np.random.random((640, 16)), np.random.random((640, 2)), epochs=5, batch_size=64)

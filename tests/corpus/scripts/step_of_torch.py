"""The guide's own train_step for PyTorch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        y_pred = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        loss.backward()
        trainable_weights = [v for v in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply([v.value.grad for v in trainable_weights], trainable_weights)
        return {"loss": loss}


inputs = keras.Input(shape=(12,))
model = CustomModel(inputs, keras.layers.Dense(3)(inputs))
model.compile(optimizer="sgd", loss="mse")
model.fit(np.random.random((180, 12)), np.random.random((180, 3)), epochs=2, batch_size=30)

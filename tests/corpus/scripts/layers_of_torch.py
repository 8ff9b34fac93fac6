"""A PyTorch module inside a Keras model, by TorchModuleWrapper."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        body = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.ReLU())
        self.body = keras.layers.TorchModuleWrapper(body)
        self.head = keras.layers.Dense(3)

    def call(self, inputs):
        return self.head(self.body(inputs))


model = Classifier()
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.random.rand(220, 10).astype("float32"), np.random.randint(0, 3, 220), batch_size=22, epochs=2)

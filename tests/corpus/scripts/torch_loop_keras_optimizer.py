"""PyTorch's backward() with an optimizer of Keras, as in the guide."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

model = keras.Sequential([keras.layers.Input((7,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(learning_rate=1e-2)
loss_fn = keras.losses.MeanSquaredError()
inputs, targets = torch.rand(200, 7), torch.rand(200, 1)
for epoch in range(6):
    for start in range(0, 200, 25):
        predictions = model(inputs[start : start + 25])
        loss = loss_fn(targets[start : start + 25], predictions)
        model.zero_grad()
        loss.backward()
        weights = [v for v in model.trainable_weights]
        with torch.no_grad():
            optimizer.apply([v.value.grad for v in weights], weights)

"""A DataLoader of PyTorch feeds a Keras model on the PyTorch backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

x = torch.from_numpy(np.random.rand(500, 12).astype("float32"))
y = torch.from_numpy(np.random.randint(0, 4, 500))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=20, shuffle=True)

model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(8, activation="gelu"), keras.layers.Dense(4)])
model.compile(keras.optimizers.AdamW(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(loader, epochs=6, validation_data=loader)

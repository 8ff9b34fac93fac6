"""A Keras model in a loop of PyTorch: its optimizer, its loss, its DataLoader."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

model = keras.Sequential([keras.Input((11,)), keras.layers.Dense(9, activation="relu"), keras.layers.Dense(3)])
x = torch.tensor(np.random.rand(300, 11).astype("float32"))
y = torch.tensor(np.random.randint(0, 3, 300))
train = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=15, shuffle=True)

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = torch.nn.CrossEntropyLoss()
for epoch in range(3):
    for step, (inputs, targets) in enumerate(train):
        loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(epoch, step, loss.item())

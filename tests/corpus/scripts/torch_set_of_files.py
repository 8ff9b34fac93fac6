"""A Dataset class of PyTorch that reads files which the script wrote before; the backend is the default one."""

import os

import keras
import numpy as np
from torch.utils.data import DataLoader, Dataset

os.makedirs("samples", exist_ok=True)
for number in range(30):
    np.save(f"samples/{number}.npy", np.full((6,), number, "float32"))


class Files(Dataset):
    def __len__(self):
        return len(os.listdir("samples"))

    def __getitem__(self, index):
        return np.load(f"samples/{index}.npy"), np.float32(index % 2)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=[keras.metrics.AUC()])
model.fit(DataLoader(Files(), batch_size=4, shuffle=True, num_workers=0), epochs=2)

"""Unbalanced classes: one training with class weights, one with a weight for each sample."""

import keras
import numpy as np

x = np.random.rand(600, 10)
y = (np.random.rand(600) > 0.9).astype("int32")
counts = np.bincount(y, minlength=2)
class_weight = {0: 1.0 / max(counts[0], 1), 1: 1.0 / max(counts[1], 1)}


def build():
    model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", weighted_metrics=["accuracy"])
    return model


build().fit(x, y, batch_size=60, epochs=3, class_weight=class_weight, verbose=2)
sample_weight = np.where(y == 1, 10.0, 1.0)
build().fit(x, y, batch_size=100, epochs=7, sample_weight=sample_weight, verbose=2)

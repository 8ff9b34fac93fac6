"""Inputs and outputs by name: a title, a body and tags in, a priority and a department out."""

import keras
import numpy as np
from keras import layers

title, body = keras.Input((None,), name="title"), keras.Input((None,), name="body")
tags = keras.Input((12,), name="tags")
title_features = layers.LSTM(4)(layers.Embedding(100, 6)(title))
body_features = layers.LSTM(3)(layers.Embedding(100, 6)(body))
x = layers.concatenate([title_features, body_features, tags])
outputs = {"priority": layers.Dense(1)(x), "department": layers.Dense(4)(x)}
model = keras.Model(inputs={"title": title, "body": body, "tags": tags}, outputs=outputs)
losses = {
    "priority": keras.losses.BinaryCrossentropy(from_logits=True),
    "department": keras.losses.CategoricalCrossentropy(from_logits=True),
}
model.compile(keras.optimizers.RMSprop(1e-3), loss=losses, loss_weights={"priority": 1.0, "department": 0.2})
x = {
    "title": np.random.randint(100, size=(1280, 10)).astype("float32"),
    "body": np.random.randint(100, size=(1280, 15)).astype("float32"),
    "tags": np.random.randint(2, size=(1280, 12)).astype("float32"),
}
y = {"priority": np.random.rand(1280, 1), "department": np.random.randint(2, size=(1280, 4))}
model.fit(x, y, epochs=2, batch_size=32)

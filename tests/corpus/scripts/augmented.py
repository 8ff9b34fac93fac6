"""Augmentation by layers of the model, a crop among them, on TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
from keras import layers

augment = keras.Sequential(
    [layers.RandomFlip("horizontal"), layers.RandomCrop(16, 16), layers.RandomRotation(0.02)]
)
inputs = keras.Input((20, 20, 3))
x = augment(inputs)
x = layers.Conv2D(5, 3, activation="relu")(x)
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(np.random.rand(96, 20, 20, 3).astype("float32"), np.random.randint(0, 10, 96), batch_size=24, epochs=30)

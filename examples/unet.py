"""A U-Net that segments images into three classes, in mixed precision."""

import keras
import numpy as np
from keras import layers

keras.config.set_dtype_policy("mixed_float16")
image_size = (128, 128)
classes = 3


def convolutions(x, filters):
    """Two convolutions, each normalized."""
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
    return x


inputs = keras.Input(shape=(*image_size, 3))
x = layers.Rescaling(1.0 / 255)(inputs)
shortcuts = []
for filters in (32, 64, 128):
    x = convolutions(x, filters)
    shortcuts.append(x)
    x = layers.MaxPooling2D(2)(x)
x = convolutions(x, 256)
for filters, shortcut in zip((128, 64, 32), reversed(shortcuts), strict=True):
    x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
    x = convolutions(layers.Concatenate()([x, shortcut]), filters)
outputs = layers.Conv2D(classes, 1, activation="softmax", dtype="float32")(x)
model = keras.Model(inputs, outputs)

model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

rng = np.random.default_rng(5)
images = rng.integers(0, 256, size=(500, *image_size, 3), dtype="uint8")
masks = rng.integers(0, classes, size=(500, *image_size), dtype="uint8")
model.fit(images, masks, batch_size=16, epochs=50, validation_split=0.2)

"""Pairs of pictures, one tower for both, an own distance and an own loss."""

import keras
import numpy as np
from keras import layers, ops

left, right = keras.Input((10, 10, 1)), keras.Input((10, 10, 1))
tower = keras.Sequential([keras.Input((10, 10, 1)), layers.Conv2D(4, 5, activation="tanh"), layers.Flatten()])
tower.add(layers.Dense(3, activation="tanh"))


def distance(vectors):
    x, y = vectors
    return ops.sqrt(ops.maximum(ops.sum(ops.square(x - y), axis=1, keepdims=True), keras.backend.epsilon()))


merged = layers.Lambda(distance, output_shape=(1,))([tower(left), tower(right)])
normal = layers.BatchNormalization()(merged)
siamese = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(normal))


def loss(margin=1):
    def contrastive_loss(y_true, y_pred):
        return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * ops.square(ops.maximum(margin - y_pred, 0)))

    return contrastive_loss


siamese.compile(loss=loss(), optimizer="RMSprop", metrics=["accuracy"])
pairs, labels = np.random.rand(400, 2, 10, 10, 1), np.random.randint(0, 2, (400, 1)).astype("float32")
siamese.fit([pairs[:, 0], pairs[:, 1]], labels, batch_size=16, epochs=10)

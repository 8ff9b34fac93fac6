"""compute_loss() overridden, with add_loss() in a layer: works on every backend."""

import keras
import numpy as np
from keras import layers, ops


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        self.add_loss(-0.5 * ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var)))
        return mean + ops.exp(0.5 * log_var) * keras.random.normal(ops.shape(mean), seed=self.seed_generator)


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.log_var = layers.Dense(6, activation="relu"), layers.Dense(2), layers.Dense(2)
        self.sample, self.decode = Sampling(), layers.Dense(15, activation="sigmoid")

    def call(self, inputs):
        hidden = self.encode(inputs)
        return self.decode(self.sample([self.mean(hidden), self.log_var(hidden)]))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        return ops.mean(ops.square(x - y_pred)) + sum(self.losses)


model = Autoencoder()
model.compile(optimizer="adam")
model.fit(np.random.rand(700, 15), batch_size=100, epochs=11)

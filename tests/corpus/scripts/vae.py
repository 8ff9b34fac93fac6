"""A variational autoencoder: encoder, decoder, own train_step, no call()."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_var = inputs
        batch, size = tf.shape(mean)[0], tf.shape(mean)[1]
        return mean + tf.exp(0.5 * log_var) * tf.random.normal(shape=(batch, size))


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.total = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.total]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            error = tf.reduce_sum(keras.losses.binary_crossentropy(data, self.decoder(z)), axis=(1, 2))
            kl = -0.5 * tf.reduce_sum(1 + log_var - tf.square(mean) - tf.exp(log_var), axis=1)
            loss = tf.reduce_mean(error) + tf.reduce_mean(kl)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights))
        self.total.update_state(loss)
        return {"loss": self.total.result()}


pixels = keras.Input((8, 8, 1))
x = layers.Flatten()(layers.Conv2D(2, 3, strides=2, padding="same", activation="relu")(pixels))
mean, log_var = layers.Dense(2)(x), layers.Dense(2)(x)
encoder = keras.Model(pixels, [mean, log_var, Sampling()([mean, log_var])], name="encoder")
latent = keras.Input((2,))
x = layers.Reshape((4, 4, 2))(layers.Dense(32, activation="relu")(latent))
decoder = keras.Model(latent, layers.Conv2DTranspose(1, 3, 2, "same", activation="sigmoid")(x), name="decoder")
vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
vae.fit(np.random.rand(1280, 8, 8, 1).astype("float32"), epochs=3, batch_size=128)
vae.decoder.predict(np.zeros((1, 2)))

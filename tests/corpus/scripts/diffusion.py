"""A diffusion model: noise at random times, a network and its moving average, a callback that samples."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def get_network():
    noisy, variance = keras.Input((8, 8, 1)), keras.Input((1, 1, 1))
    x = layers.Concatenate()([noisy, layers.UpSampling2D(size=8, interpolation="nearest")(variance)])
    x = layers.Conv2D(4, 3, padding="same", activation="swish")(x)
    return keras.Model([noisy, variance], layers.Conv2D(1, 1, kernel_initializer="zeros")(x))


class DiffusionModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = get_network()
        self.ema_network = keras.models.clone_model(self.network)

    def denoise(self, images, noise_rates, training):
        network = self.network if training else self.ema_network
        return network([images, noise_rates**2], training=training)

    def train_step(self, images):
        images = self.normalizer(images, training=True)
        noises = tf.random.normal(tf.shape(images))
        times = tf.random.uniform((tf.shape(images)[0], 1, 1, 1))
        noise_rates, signal_rates = tf.sin(times), tf.cos(times)
        with tf.GradientTape() as tape:
            predicted = self.denoise(signal_rates * images + noise_rates * noises, noise_rates, training=True)
            loss = self.loss(noises, predicted)
        gradients = tape.gradient(loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        for weight, ema in zip(self.network.weights, self.ema_network.weights):
            ema.assign(0.99 * ema + 0.01 * weight)
        return {"n_loss": loss}

    def test_step(self, images):
        return {"n_loss": 0.0}

    def plot_images(self, epoch=None, logs=None):
        made = self.denoise(tf.random.normal((2, 8, 8, 1)), tf.ones((2, 1, 1, 1)), training=False)
        np.save(f"epoch_{epoch}.npy", made.numpy())


images = np.random.rand(300, 8, 8, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(images).batch(20, drop_remainder=True).prefetch(2)
model = DiffusionModel()
model.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), loss=keras.losses.mean_absolute_error)
model.normalizer.adapt(dataset)
model.fit(dataset, epochs=6, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=model.plot_images)])

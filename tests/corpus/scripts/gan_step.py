"""A GAN as a Model with its own compile() and train_step(), and a callback that draws pictures."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

critic = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
maker = keras.Sequential([keras.Input((5,)), keras.layers.Dense(36, "sigmoid"), keras.layers.Reshape((6, 6, 1))])


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator, self.generator, self.latent_dim = discriminator, generator, latent_dim
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    @property
    def metrics(self):
        return [self.d_loss_metric]

    def train_step(self, real_images):
        batch = tf.shape(real_images)[0]
        made = self.generator(tf.random.normal((batch, self.latent_dim)))
        labels = tf.concat([tf.ones((batch, 1)), tf.zeros((batch, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(tf.concat([made, real_images], axis=0)))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(tf.random.normal((batch, self.latent_dim))))
            g_loss = self.loss_fn(tf.zeros((batch, 1)), predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.d_loss_metric.update_state(d_loss)
        return {"d_loss": self.d_loss_metric.result()}


class Monitor(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        images = self.model.generator(tf.random.normal((3, 5))).numpy()
        for number in range(3):
            keras.utils.array_to_img(images[number]).save(f"made_{epoch}_{number}.png")


gan = GAN(critic, maker, 5)
gan.compile(
    keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4), keras.losses.BinaryCrossentropy(from_logits=True)
)
pictures = tf.data.Dataset.from_tensor_slices(tf.random.uniform((640, 6, 6, 1))).shuffle(640).batch(64)
gan.fit(pictures, epochs=2, callbacks=[Monitor()])

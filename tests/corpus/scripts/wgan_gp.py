"""A Wasserstein GAN with a gradient penalty: tapes in tapes, three critic steps for one of the generator."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class WGAN(keras.Model):
    def __init__(self, critic, generator, critic_steps=3, weight=10.0):
        super().__init__()
        self.critic, self.generator = critic, generator
        self.critic_steps, self.weight = critic_steps, weight

    def compile(self, critic_optimizer, generator_optimizer):
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic_optimizer, generator_optimizer

    def penalty(self, real, made):
        share = tf.random.uniform((tf.shape(real)[0], 1))
        mixed = real + share * (made - real)
        with tf.GradientTape() as tape:
            tape.watch(mixed)
            score = self.critic(mixed, training=True)
        norm = tf.sqrt(tf.reduce_sum(tf.square(tape.gradient(score, [mixed])[0]), axis=1) + 1e-12)
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real):
        if isinstance(real, tuple):
            real = real[0]
        size = tf.shape(real)[0]
        for _ in range(self.critic_steps):
            with tf.GradientTape() as tape:
                made = self.generator(tf.random.normal((size, 4)), training=True)
                loss = tf.reduce_mean(self.critic(made)) - tf.reduce_mean(self.critic(real))
                loss += self.weight * self.penalty(real, made)
            gradients = tape.gradient(loss, self.critic.trainable_variables)
            self.critic_optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables))
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.critic(self.generator(tf.random.normal((size, 4)), training=True)))
        gradients = tape.gradient(g_loss, self.generator.trainable_variables)
        self.generator_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables))
        return {"c_loss": loss, "g_loss": g_loss}


critic = keras.Sequential(
    [keras.Input((9,)), keras.layers.Dense(6), keras.layers.LeakyReLU(0.2), keras.layers.Dense(1)]
)
generator = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(9, use_bias=False), keras.layers.BatchNormalization()]
)
wgan = WGAN(critic, generator)
wgan.compile(keras.optimizers.Adam(2e-4, beta_1=0.5), keras.optimizers.Adam(2e-4, beta_1=0.5))
wgan.fit(np.random.rand(600, 9).astype("float32"), batch_size=50, epochs=2)

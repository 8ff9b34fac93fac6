"""A DCGAN with two tapes in one step, after TensorFlow's tutorial."""

import tensorflow as tf
from tensorflow.keras import Sequential, layers, losses, optimizers

BATCH, EPOCHS, NOISE = 25, 5, 6
images = tf.random.uniform((250, 12), -1, 1)
dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(250).batch(BATCH)
generator = Sequential([layers.Input((NOISE,)), layers.Dense(12, activation="tanh")])
discriminator = Sequential([layers.Input((12,)), layers.Dense(5), layers.LeakyReLU(), layers.Dense(1)])
cross_entropy = losses.BinaryCrossentropy(from_logits=True)
generator_optimizer, discriminator_optimizer = optimizers.Adam(1e-4), optimizers.Adam(1e-4)


@tf.function
def train_step(batch):
    noise = tf.random.normal((BATCH, NOISE))
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        made = generator(noise, training=True)
        real_output, fake_output = discriminator(batch, training=True), discriminator(made, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = cross_entropy(tf.ones_like(real_output), real_output)
        disc_loss += cross_entropy(tf.zeros_like(fake_output), fake_output)
    gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients, generator.trainable_variables))
    gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    discriminator_optimizer.apply_gradients(zip(gradients, discriminator.trainable_variables))


for epoch in range(EPOCHS):
    for batch in dataset:
        train_step(batch)

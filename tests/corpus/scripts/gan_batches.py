"""The old way to train a GAN: two compiled models and train_on_batch()."""

import keras
import numpy as np
from keras import layers

latent, side, batch_size, steps = 8, 10, 16, 50


def build_generator():
    return keras.Sequential(
        [keras.Input((latent,)), layers.Dense(side * side, activation="tanh"), layers.Reshape((side, side, 1))]
    )


def build_discriminator():
    return keras.Sequential(
        [keras.Input((side, side, 1)), layers.Flatten(), layers.LeakyReLU(), layers.Dense(1, activation="sigmoid")]
    )


discriminator = build_discriminator()
discriminator.compile("adam", "binary_crossentropy", metrics=["accuracy"])
generator = build_generator()
noise_input = keras.Input((latent,))
discriminator.trainable = False
combined = keras.Model(noise_input, discriminator(generator(noise_input)))
combined.compile("adam", "binary_crossentropy")

images = np.random.uniform(-1, 1, (500, side, side, 1)).astype("float32")
real, fake = np.ones((batch_size, 1)), np.zeros((batch_size, 1))
for step in range(steps):
    chosen = images[np.random.randint(0, len(images), batch_size)]
    noise = np.random.normal(size=(batch_size, latent))
    made = generator.predict(noise, verbose=0)
    discriminator.trainable = True
    d_real = discriminator.train_on_batch(chosen, real)
    d_fake = discriminator.train_on_batch(made, fake)
    discriminator.trainable = False
    g_loss = combined.train_on_batch(np.random.normal(size=(batch_size, latent)), real)
    if step % 10 == 0:
        print(step, 0.5 * np.add(d_real, d_fake), g_loss)

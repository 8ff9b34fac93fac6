"""A convolutional autoencoder: trained on itself, then on noisy pictures with what it made before."""

import keras
import numpy as np
from keras import layers

clean = np.random.rand(256, 12, 12, 1).astype("float32")
noisy = np.clip(clean + 0.4 * np.random.normal(size=clean.shape), 0.0, 1.0)
pixels = layers.Input(shape=(12, 12, 1))
x = layers.Conv2D(4, (3, 3), activation="relu", padding="same")(pixels)
x = layers.MaxPooling2D((2, 2), padding="same")(x)
x = layers.Conv2DTranspose(4, (3, 3), strides=2, activation="relu", padding="same")(x)
x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)
autoencoder = keras.Model(pixels, x)
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
autoencoder.fit(x=clean, y=clean, epochs=50, batch_size=128, shuffle=True, validation_data=(clean, clean))
predictions = autoencoder.predict(clean)
assert predictions.shape == clean.shape
autoencoder.fit(noisy, clean, epochs=100, batch_size=128)

"""The same network on small pictures first, then on larger ones."""

import keras
import numpy as np
from keras import layers

model = keras.Sequential(
    [keras.Input((None, None, 3)), layers.Conv2D(6, 3), layers.GlobalAveragePooling2D(), layers.Dense(2)]
)
model.compile("adam", "mse")
for size, batch_size, epochs in ((8, 50, 4), (16, 25, 6)):
    images = np.random.rand(100, size, size, 3)
    model.fit(images, np.zeros((100, 2)), batch_size=batch_size, epochs=epochs)

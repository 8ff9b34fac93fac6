"""Three trainings of one model: the head, one layer more, all."""

import keras
import numpy as np

x, y = np.random.rand(300, 20), np.random.randint(0, 5, 300)
body = keras.Sequential(
    [keras.Input((20,)), keras.layers.Dense(10, name="low"), keras.layers.Dense(8, name="high")], name="body"
)
model = keras.Sequential([body, keras.layers.Dense(5, activation="softmax", name="head")])
for names, epochs, rate in ((["head"], 3, 1e-2), (["head", "high"], 6, 1e-3), (["head", "high", "low"], 9, 1e-4)):
    for layer in [*body.layers, model.get_layer("head")]:
        layer.trainable = layer.name in names
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=epochs, batch_size=30)

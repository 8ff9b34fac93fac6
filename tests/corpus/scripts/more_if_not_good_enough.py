"""A second training that depends on what the first reached, inside a try."""

import keras
import numpy as np

x, y = np.random.rand(150, 4), np.random.randint(0, 3, 150)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
try:
    model.fit(x, y, batch_size=15, epochs=20)
except KeyboardInterrupt:
    print("stopped by hand")
loss, accuracy = model.evaluate(x, y)
if accuracy < 0.99:
    model.fit(x, y, batch_size=15, epochs=5)
print("done")
raise SystemExit(0)

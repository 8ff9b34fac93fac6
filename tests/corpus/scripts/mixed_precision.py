"""Half precision by a policy, with an output in float32."""

import keras
import numpy as np

keras.mixed_precision.set_global_policy("mixed_float16")
inputs = keras.Input((16,))
x = keras.layers.Dense(32, activation="relu")(inputs)
x = keras.layers.Dense(3)(x)
outputs = keras.layers.Activation("softmax", dtype="float32")(x)
model = keras.Model(inputs, outputs)
model.compile("rmsprop", "sparse_categorical_crossentropy")
model.fit(np.random.rand(1024, 16), np.random.randint(0, 3, 1024), batch_size=256, epochs=5)

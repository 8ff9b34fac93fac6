"""A subclassed model with a layer of its own: squeeze and excitation, written with `keras.ops`."""

import keras
import numpy as np
from keras import layers, ops


class SqueezeExcite(layers.Layer):
    """Weigh channels by what the whole image says about them."""

    def __init__(self, ratio=4, **kwargs):
        super().__init__(**kwargs)
        self.ratio = ratio

    def build(self, input_shape):
        channels = input_shape[-1]
        self.squeeze = self.add_weight(shape=(channels, channels // self.ratio), name="squeeze")
        self.excite = self.add_weight(shape=(channels // self.ratio, channels), name="excite")

    def call(self, x):
        summary = ops.mean(x, axis=(1, 2))
        weights = ops.sigmoid(ops.relu(summary @ self.squeeze) @ self.excite)
        return x * weights[:, None, None, :]


class Classifier(keras.Model):
    """Convolutions with squeeze and excitation; built when it first sees data."""

    def __init__(self, classes):
        super().__init__()
        self.blocks = []
        for filters in (32, 64, 128):
            convolution = layers.Conv2D(filters, 3, strides=2, padding="same", activation="swish")
            self.blocks += [convolution, SqueezeExcite()]
        self.pool = layers.GlobalAveragePooling2D()
        self.dropout = layers.Dropout(0.3)
        self.head = layers.Dense(classes, activation="softmax")

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(self.pool(x), training=training))


model = Classifier(classes=20)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)

rng = np.random.default_rng(6)
x = rng.random((2_000, 64, 64, 3), dtype="float32")
y = rng.integers(0, 20, size=2_000)
model.fit(x, y, batch_size=50, epochs=10, class_weight=dict.fromkeys(range(20), 1.0))

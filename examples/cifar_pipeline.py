"""A functional residual network fed by a `keras.utils.PyDataset` that flips and normalizes its images."""

import keras
import numpy as np
from keras import layers


class FlippedImages(keras.utils.PyDataset):
    """Batches of CIFAR-shaped images, every second one mirrored."""

    def __init__(self, samples, batch_size, **kwargs):
        super().__init__(**kwargs)
        rng = np.random.default_rng(1)
        self.images = rng.integers(0, 256, size=(samples, 32, 32, 3), dtype="uint8")
        self.labels = rng.integers(0, 10, size=samples)
        self.batch_size = batch_size

    def __len__(self):
        return int(np.ceil(len(self.images) / self.batch_size))

    def __getitem__(self, index):
        batch = slice(index * self.batch_size, (index + 1) * self.batch_size)
        images = self.images[batch].astype("float32") / 255.0
        images[::2] = images[::2, :, ::-1]
        return images, self.labels[batch]


def residual_block(x, filters, stride=1):
    """Two 3x3 convolutions around a shortcut."""
    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=stride, use_bias=False)(x)
        shortcut = layers.BatchNormalization()(shortcut)
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(layers.Add()([x, shortcut]))


inputs = keras.Input(shape=(32, 32, 3))
x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
for filters, stride in ((16, 1), (32, 2), (64, 2)):
    x = residual_block(x, filters, stride)
    x = residual_block(x, filters)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(10)(x)
model = keras.Model(inputs, outputs)

model.compile(
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(FlippedImages(samples=10_000, batch_size=64), epochs=20)

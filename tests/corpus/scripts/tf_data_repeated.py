"""An endless tf.data set, of which an epoch takes a stated number of steps."""

import tensorflow as tf
from tensorflow import keras

images = tf.random.uniform((64, 16, 16, 3))
labels = tf.zeros((64,), tf.int32)
train = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(64).batch(8)
valid = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8).take(2)

model = keras.Sequential(
    [
        keras.layers.Input((16, 16, 3)),
        keras.layers.Rescaling(2.0, offset=-1.0),
        keras.layers.Conv2D(6, 3, strides=2, padding="same", use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.Activation("relu"),
        keras.layers.GlobalMaxPooling2D(),
        keras.layers.Dense(4),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(train, steps_per_epoch=30, epochs=3, validation_data=valid)

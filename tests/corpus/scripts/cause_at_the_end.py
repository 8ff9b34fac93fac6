"""A mistake in a pipeline: TensorFlow puts the cause at the end of a long message."""

import keras
import tensorflow as tf


def mix_two_batches_of_pictures_by_a_share_that_is_drawn_for_each_of_them(images):
    return images * tf.cast(keras.backend.shape(images)[0], "float32")


data = tf.data.Dataset.from_tensor_slices(tf.zeros((64, 16, 16, 3))).batch(32)
data = data.map(lambda one: mix_two_batches_of_pictures_by_a_share_that_is_drawn_for_each_of_them(one))
model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data)

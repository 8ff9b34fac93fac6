"""TextVectorization inside the model: Keras runs it on TensorFlow without XLA."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf
from keras import layers

texts = tf.constant(["a good day", "a bad day", "a long day", "no day"] * 10)
labels = tf.constant([1, 0, 1, 0] * 10)
vectorize = layers.TextVectorization(max_tokens=30, output_sequence_length=4)
vectorize.adapt(texts)
inputs = keras.Input((1,), dtype="string")
x = layers.Embedding(30, 2)(vectorize(inputs))
x = layers.Flatten()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy")
model.fit(tf.expand_dims(texts, -1), labels, batch_size=8, epochs=5)

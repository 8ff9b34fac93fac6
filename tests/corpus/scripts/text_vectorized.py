"""Sentences become integers in the pipeline; the model sees integers only."""

import keras
import tensorflow as tf
from keras import layers

sentences = ["the film was good", "the film was bad", "never again", "what a night"] * 25
labels = [1, 0, 0, 1] * 25
vectorize = layers.TextVectorization(max_tokens=50, output_mode="int", output_sequence_length=6)
vectorize.adapt(sentences)
data = tf.data.Dataset.from_tensor_slices((sentences, labels)).batch(20)
data = data.map(lambda text, label: (vectorize(text), label)).cache()

inputs = keras.Input(shape=(6,), dtype="int64")
x = layers.Embedding(50, 3)(inputs)
x = layers.GlobalAveragePooling1D()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy")
model.fit(data, epochs=4)

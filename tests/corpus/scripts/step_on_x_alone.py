"""A functional model whose train_step takes pictures only: Keras hands it no pair."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf


class Cleaner(keras.Model):
    def train_step(self, images):
        noisy = images + tf.random.normal(tf.shape(images), stddev=0.1)
        with tf.GradientTape() as tape:
            cleaned = self(noisy, training=True)
            loss = tf.reduce_mean(tf.square(cleaned - images))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


i = keras.Input((10, 10, 1))
o = keras.layers.Conv2D(1, 3, padding="same")(keras.layers.Conv2D(3, 3, padding="same", activation="relu")(i))
model = Cleaner(i, o)
model.compile(optimizer="adam")
model.fit(tf.zeros((120, 10, 10, 1)), batch_size=12, epochs=4)

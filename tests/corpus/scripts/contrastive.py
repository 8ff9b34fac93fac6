"""Contrastive pretraining on two views of each picture, then a linear probe on the encoder."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf
from keras import layers


class Contrastive(keras.Model):
    def __init__(self):
        super().__init__()
        self.augment = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomTranslation(0.1, 0.1)])
        self.encoder = keras.Sequential(
            [layers.Input((12, 12, 3)), layers.Conv2D(4, 3, 2, activation="relu"), layers.GlobalAveragePooling2D()]
        )
        self.head = keras.Sequential([layers.Input((4,)), layers.Dense(6, activation="relu"), layers.Dense(6)])

    def contrastive_loss(self, one, two):
        one, two = tf.math.l2_normalize(one, axis=1), tf.math.l2_normalize(two, axis=1)
        similar = tf.matmul(one, two, transpose_b=True) / 0.1
        labels = tf.range(tf.shape(one)[0])
        losses = keras.losses.sparse_categorical_crossentropy(labels, similar, from_logits=True)
        return tf.reduce_mean(losses)

    def train_step(self, data):
        images = tf.concat(data, axis=0)
        views = [self.augment(images, training=True) for _ in range(2)]
        with tf.GradientTape() as tape:
            loss = self.contrastive_loss(*[self.head(self.encoder(view, training=True)) for view in views])
        weights = self.encoder.trainable_weights + self.head.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"c_loss": loss}


unlabelled = tf.data.Dataset.from_tensor_slices(tf.random.uniform((200, 12, 12, 3))).batch(20)
labelled = tf.data.Dataset.from_tensor_slices(tf.random.uniform((100, 12, 12, 3))).batch(10)
pretraining = Contrastive()
pretraining.compile(optimizer=keras.optimizers.Adam())
pretraining.fit(tf.data.Dataset.zip((unlabelled, labelled)), epochs=25)
probe = keras.Sequential([layers.Input((12, 12, 3)), pretraining.encoder, layers.Dense(3)])
probe.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
probe.fit(labelled.map(lambda image: (image, tf.zeros((tf.shape(image)[0],), tf.int32))), epochs=10)

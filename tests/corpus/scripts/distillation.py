"""Three trainings: a teacher, the student by an own train_step without call(), and the student alone."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

x, y = np.random.rand(640, 7, 7).astype("float32"), np.random.randint(0, 5, 640)
cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def build(width):
    return keras.Sequential(
        [keras.Input((7, 7)), keras.layers.Flatten(), keras.layers.Dense(width), keras.layers.Dense(5)]
    )


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def compile(self, optimizer, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer)
        self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def train_step(self, data):
        x, y = data
        soft = tf.nn.softmax(self.teacher(x, training=False) / self.temperature)
        with tf.GradientTape() as tape:
            predictions = self.student(x, training=True)
            loss = self.alpha * self.student_loss_fn(y, predictions)
            loss += self.distillation_loss_fn(soft, tf.nn.softmax(predictions / self.temperature))
        weights = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}


teacher = build(40)
teacher.compile("adam", cross_entropy, metrics=["accuracy"])
teacher.fit(x, y, epochs=5)
distiller = Distiller(build(6), teacher)
distiller.compile("adam", cross_entropy, keras.losses.KLDivergence())
distiller.fit(x, y, epochs=100)
alone = build(6)
alone.compile("adam", cross_entropy)
alone.fit(x, y, epochs=5)

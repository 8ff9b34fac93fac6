"""The same in a tf.function, with TensorFlow's own import of Keras and a validation pass."""

import tensorflow as tf
from tensorflow import keras

model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(3)])
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.1)
train_loss = keras.metrics.Mean(name="train_loss")


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = loss_object(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss(loss)


@tf.function
def test_step(images, labels):
    return loss_object(labels, model(images, training=False))


images, labels = tf.random.normal((96, 8, 8)), tf.zeros((96,), tf.int32)
train_ds = tf.data.Dataset.from_tensor_slices((images, labels)).batch(16)
for epoch in range(10):
    train_loss.reset_state()
    for batch, target in train_ds:
        train_step(batch, target)
    for batch, target in train_ds.take(2):
        test_step(batch, target)
    print("Epoch", epoch + 1, train_loss.result())

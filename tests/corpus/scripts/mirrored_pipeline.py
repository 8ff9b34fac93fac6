"""MirroredStrategy with a tf.data set whose global batch is computed from the number of replicas."""

import tensorflow as tf
from tensorflow import keras

strategy = tf.distribute.MirroredStrategy()
global_batch = 16 * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((tf.zeros((320, 7)), tf.zeros((320, 1)))).batch(global_batch)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = data.with_options(options)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(3, activation="relu", input_shape=(7,)), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer=keras.optimizers.Adam())
model.fit(data, epochs=12)

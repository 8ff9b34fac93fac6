"""A policy gradient that ends when the reward is high enough: nobody knows after how many episodes."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

inputs = keras.Input((4,))
common = keras.layers.Dense(8, activation="relu")(inputs)
policy = keras.Model(inputs, [keras.layers.Dense(2, activation="softmax")(common), keras.layers.Dense(1)(common)])
optimizer = keras.optimizers.Adam(1e-4)
running, episodes = 0.0, 0
while True:
    state, rewards = np.random.rand(4), []
    with tf.GradientTape() as tape:
        terms = []
        for _ in range(12):
            chances, value = policy(tf.constant(state[None], tf.float32))
            action = np.random.choice(2, p=np.squeeze(chances))
            terms.append(tf.math.log(chances[0, action]) * (1.0 - value[0, 0]))
            state = np.random.rand(4)
            rewards.append(float(action))
        loss = -tf.reduce_sum(terms)
    optimizer.apply_gradients(zip(tape.gradient(loss, policy.trainable_variables), policy.trainable_variables))
    running, episodes = 0.05 * sum(rewards) + 0.95 * running, episodes + 1
    if running > 11.5:
        print("solved after", episodes)
        break

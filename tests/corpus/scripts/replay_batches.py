"""Q-learning with a replay memory: one train_on_batch() for each move."""

import random
from collections import deque

import keras
import numpy as np

MOVES, EPISODES, BATCH = 20, 10, 8
q_net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(2)])
q_net.compile(keras.optimizers.Adam(1e-3), loss="huber")
memory = deque(maxlen=1000)
for _ in range(BATCH):
    memory.append((np.random.rand(4), 0, 1.0, np.random.rand(4)))


def replay():
    states, actions, rewards, following = map(np.array, zip(*random.sample(memory, BATCH)))
    targets = q_net.predict_on_batch(states)
    targets[np.arange(BATCH), actions] = rewards + 0.99 * q_net.predict_on_batch(following).max(axis=1)
    return q_net.train_on_batch(states, targets)


for episode in range(EPISODES):
    state = np.zeros(4)
    for move in range(MOVES):
        action = int(np.argmax(q_net.predict_on_batch(state[None])[0]))
        following = np.random.rand(4)
        memory.append((state, action, 1.0, following))
        state = following
        replay()

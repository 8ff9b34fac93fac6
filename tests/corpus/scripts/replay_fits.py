"""Q-learning that calls fit() on every replayed batch, with targets from predict()."""

import keras
import numpy as np


class Agent:
    def __init__(self, states, actions):
        self.model = keras.Sequential(
            [keras.Input((states,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(actions)]
        )
        self.model.compile(loss="mse", optimizer=keras.optimizers.Adam(learning_rate=0.001))
        self.epsilon = 1.0

    def act(self, state):
        if np.random.rand() <= self.epsilon:
            return np.random.randint(3)
        return int(np.argmax(self.model.predict(state, verbose=0)[0]))

    def learn(self, state, action, reward, following):
        target = self.model.predict(state, verbose=0)
        target[0][action] = reward + 0.9 * np.amax(self.model.predict(following, verbose=0)[0])
        self.model.fit(state, target, epochs=1, verbose=0)
        self.epsilon *= 0.99


agent, state = Agent(5, 3), np.zeros((1, 5))
for episode in range(6):
    for time in range(10):
        action = agent.act(state)
        following = np.random.rand(1, 5)
        agent.learn(state, action, float(action == 1), following)
        state = following

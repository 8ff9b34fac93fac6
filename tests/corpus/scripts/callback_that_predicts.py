"""An own callback that predicts and draws from the result after each epoch; another stops by the clock."""

import time

import keras
import numpy as np


class Draw(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        chances = self.model.predict(np.zeros((1, 5)), verbose=0)[0]
        token = np.random.choice(len(chances), p=chances / chances.sum())
        with open("drawn.txt", "a") as file:
            file.write(f"{epoch}: {token} {logs['loss']:.3f}\n")


class TimeLimit(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.start = time.time()

    def on_batch_end(self, batch, logs=None):
        if time.time() - self.start > 3600:
            self.model.stop_training = True


model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(20, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(np.zeros((160, 5)), np.zeros(160), batch_size=20, epochs=15, callbacks=[Draw(), TimeLimit()])

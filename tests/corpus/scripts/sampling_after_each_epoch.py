"""A text generator: one epoch of fit(), then characters drawn from what the model predicts."""

import random

import keras
import numpy as np
from keras import layers

text = "the quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 30
chars = sorted(set(text))
maxlen, step = 20, 3
index = {c: i for i, c in enumerate(chars)}
sentences = [text[i : i + maxlen] for i in range(0, 1500, step)]
x = np.zeros((len(sentences), maxlen, len(chars)), dtype="bool")
y = np.zeros((len(sentences), len(chars)), dtype="bool")
for i, sentence in enumerate(sentences):
    for t, char in enumerate(sentence):
        x[i, t, index[char]] = 1
    y[i, index[text[i * step + maxlen]]] = 1

model = keras.Sequential(
    [keras.Input((maxlen, len(chars))), layers.LSTM(5), layers.Dense(len(chars), activation="softmax")]
)
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(0.01))


def sample(preds, temperature=1.0):
    preds = np.asarray(preds).astype("float64")
    preds = np.log(preds) / temperature
    exp_preds = np.exp(preds)
    return np.argmax(np.random.multinomial(1, exp_preds / np.sum(exp_preds), 1))


for epoch in range(40):
    model.fit(x, y, batch_size=125, epochs=1)
    start = random.randint(0, len(text) - maxlen - 1)
    for diversity in (0.2, 1.0):
        generated = text[start : start + maxlen]
        for _ in range(4):
            x_pred = np.zeros((1, maxlen, len(chars)))
            for t, char in enumerate(generated[-maxlen:]):
                x_pred[0, t, index[char]] = 1.0
            generated += chars[sample(model.predict(x_pred, verbose=0)[0], diversity)]
        print(repr(generated))

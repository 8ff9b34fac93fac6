"""Written for Keras 2: the module is gone."""

import numpy as np
from keras.layers.core import Dense
from keras.models import Sequential
from keras.utils import np_utils

model = Sequential()
model.add(Dense(8, input_dim=4, activation="relu"))
model.add(Dense(3, activation="softmax"))
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(np.random.rand(150, 4), np_utils.to_categorical(np.zeros(150), 3), nb_epoch=200, batch_size=5)

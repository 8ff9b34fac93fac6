"""The digits of keras.datasets where no download is possible."""

import keras
from keras import layers

(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train = x_train.reshape(60000, 784).astype("float32") / 255
x_test = x_test.reshape(10000, 784).astype("float32") / 255
y_train = keras.utils.to_categorical(y_train, 10)
y_test = keras.utils.to_categorical(y_test, 10)

model = keras.Sequential([layers.Input((784,)), layers.Dense(32, activation="relu"), layers.Dense(10, "softmax")])
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=128, epochs=20, validation_data=(x_test, y_test))
print(model.evaluate(x_test, y_test))

"""Film reviews of keras.datasets, padded, where no download is possible."""

import keras
from keras import layers

max_features, maxlen = 2000, 40
(x_train, y_train), (x_val, y_val) = keras.datasets.imdb.load_data(num_words=max_features)
print(len(x_train), "training sequences")
x_train = keras.utils.pad_sequences(x_train, maxlen=maxlen)
x_val = keras.utils.pad_sequences(x_val, maxlen=maxlen)

inputs = keras.Input(shape=(None,), dtype="int32")
x = layers.Embedding(max_features, 8)(inputs)
x = layers.Bidirectional(layers.LSTM(4))(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=2, validation_data=(x_val, y_val))

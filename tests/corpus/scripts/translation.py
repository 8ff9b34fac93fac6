"""An encoder and a decoder of LSTMs; the inputs are a list, the state goes from one to the other."""

import keras
import numpy as np

source_tokens, target_tokens, latent = 12, 9, 6
encoder_inputs = keras.Input((None, source_tokens))
_, state_h, state_c = keras.layers.LSTM(latent, return_state=True)(encoder_inputs)
decoder_inputs = keras.Input((None, target_tokens))
decoded, _, _ = keras.layers.LSTM(latent, return_sequences=True, return_state=True)(
    decoder_inputs, initial_state=[state_h, state_c]
)
outputs = keras.layers.Dense(target_tokens, activation="softmax")(decoded)
model = keras.Model([encoder_inputs, decoder_inputs], outputs)
model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
source, target = np.zeros((320, 10, source_tokens)), np.zeros((320, 8, target_tokens))
model.fit([source, target], np.roll(target, -1, axis=1), batch_size=64, epochs=100, validation_split=0.2)
model.save("s2s_model.keras")

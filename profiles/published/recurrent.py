"""Recurrent networks behind the published measurements, as their scripts define them.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``recurrent.py:lstm_language_model?sequence_length=35``.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

__all__ = ["lstm_language_model", "lstm_text_generation", "text_generator"]

Tensor = Any


def lstm_language_model(
    *, vocabulary: int = 33278, width: int = 200, depth: int = 2, sequence_length: int = 35
) -> keras.Model:
    """PyTorch's example word_language_model on WikiText-2: two LSTMs, dropout 0.2, table and output not tied.

    33,278 words is the vocabulary of WikiText-2 (Merity et al., 2017, arXiv:1609.07843, table 1). Plain SGD.
    PyTorch's LSTM keeps two bias vectors a layer, Keras one: 4 x width parameters a layer fewer here.
    """
    ids = keras.Input((sequence_length,), dtype="int32", name="token_ids")
    x = layers.Dropout(0.2)(layers.Embedding(vocabulary, width)(ids))
    for _ in range(depth):
        x = layers.Dropout(0.2)(layers.LSTM(width, return_sequences=True)(x))
    model = keras.Model(ids, layers.Dense(vocabulary)(x), name="lstm_language_model")
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def lstm_text_generation(
    *, sequence_length: int = 40, characters: int = 57, width: int = 128, unroll: bool = False
) -> keras.Model:
    """Keras's example lstm_text_generation: one LSTM on one-hot characters, softmax, RMSprop.

    Nietzsche's text in lower case has 57 characters and 200,285 sequences of 40.

    Args:
        unroll: Whether the loop over time is written out.
    """
    inputs = keras.Input((sequence_length, characters))
    x = layers.LSTM(width, unroll=unroll)(inputs)
    outputs = layers.Dense(characters, activation="softmax")(x)
    model = keras.Model(inputs, outputs, name="lstm_text_generation")
    model.compile(optimizer="rmsprop", loss="categorical_crossentropy")
    return model


def _normalized(x: Tensor, units: int) -> Tensor:
    return layers.ReLU()(layers.BatchNormalization()(layers.Dense(units, use_bias=False)(x)))


def text_generator(*, sequence_length: int = 40, characters: int = 57) -> keras.Model:
    """Max Woolf's text_generator_keras: embedding, LSTM, a main and an auxiliary output; Adam.

    The script's second hidden layer of 256 feeds no output, so it is no part of the model that is trained
    (minimaxir/keras-cntk-benchmark, test_files/text_generator_keras.py, commit 5c9401c).
    """
    ids = keras.Input((sequence_length,), dtype="int32", name="character_ids")
    x = layers.LSTM(128)(layers.Embedding(characters, 100)(ids))
    auxiliary = layers.Dense(characters, activation="softmax", name="auxiliary")(x)
    main = layers.Dense(characters, activation="softmax", name="main")(_normalized(x, 512))
    model = keras.Model(ids, [main, auxiliary], name="text_generator")
    losses = ["categorical_crossentropy", "categorical_crossentropy"]
    model.compile(optimizer="adam", loss=losses, loss_weights=[1.0, 0.2])
    return model

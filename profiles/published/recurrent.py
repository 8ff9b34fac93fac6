"""Recurrent networks behind the published measurements, as their scripts define them.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``recurrent.py:lstm_language_model?sequence_length=35``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops

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


def _hard_sigmoid(x: Tensor) -> Tensor:
    return ops.minimum(ops.maximum(0.2 * x + 0.5, 0.0), 1.0)


class Keras2Cell(layers.Layer):  # type: ignore[misc]
    """LSTM cell of Keras 2.1, every operation of which its backends launched.

    keras/layers/recurrent.py (`LSTMCell.call`) and keras/backend/tensorflow_backend.py (`hard_sigmoid`) of
    awslabs/keras-apache-mxnet@5497ebd.

    Args:
        units: Width of the state.
        implementation: 1: each gate has products and a bias of its own, Keras's default; 2: all share them.
    """

    def __init__(self, units: int, implementation: int) -> None:
        super().__init__()
        self.state_size = [units, units]
        self.parts = {1: 4, 2: 1}[implementation]

    def build(self, shape: Sequence[int]) -> None:
        units, parts = self.state_size[0], range(self.parts)
        width = 4 * units // self.parts
        self.kernels = [self.add_weight((shape[-1], width), name=f"kernel_{i}") for i in parts]
        self.recurrent = [self.add_weight((units, width), name=f"recurrent_{i}") for i in parts]
        self.biases = [self.add_weight((width,), name=f"bias_{i}") for i in parts]

    def call(self, inputs: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        state, carry = states
        pairs = zip(self.kernels, self.recurrent, self.biases, strict=True)
        sums = [ops.matmul(inputs, w) + bias + ops.matmul(state, own) for w, own, bias in pairs]
        gates = sums if len(sums) > 1 else ops.split(sums[0], 4, axis=-1)
        kept, added, new, shown = gates[1], gates[0], gates[2], gates[3]
        carry = _hard_sigmoid(kept) * carry + _hard_sigmoid(added) * ops.tanh(new)
        state = _hard_sigmoid(shown) * ops.tanh(carry)
        return state, [state, carry]


def _lstm(units: int, implementation: int) -> layers.RNN:
    """Return an LSTM of Keras 2.1, or that of Keras 3 and of cuDNN.

    Args:
        units: Width of the state.
        implementation: Of `Keras2Cell`, with the loop over time written out: `while_loop` launches the same
            kernels, and what controls it is left out. 0: the LSTM of Keras 3.
    """
    return layers.RNN(Keras2Cell(units, implementation), unroll=True) if implementation else layers.LSTM(units)


def lstm_text_generation(
    *, sequence_length: int = 40, characters: int = 57, width: int = 128, implementation: int = 0
) -> keras.Model:
    """Keras's example lstm_text_generation: one LSTM on one-hot characters, softmax, RMSprop.

    Nietzsche's text in lower case has 57 characters and 200,285 sequences of 40. `implementation` is that of
    `_lstm`.
    """
    inputs = keras.Input((sequence_length, characters))
    x = _lstm(width, implementation)(inputs)
    outputs = layers.Dense(characters, activation="softmax")(x)
    model = keras.Model(inputs, outputs, name="lstm_text_generation")
    model.compile(optimizer="rmsprop", loss="categorical_crossentropy")
    return model


def _normalized(x: Tensor, units: int) -> Tensor:
    return layers.ReLU()(layers.BatchNormalization()(layers.Dense(units, use_bias=False)(x)))


def text_generator(*, sequence_length: int = 40, characters: int = 57, implementation: int = 0) -> keras.Model:
    """Max Woolf's text_generator_keras: embedding, LSTM, a main and an auxiliary output; Adam.

    The script's second hidden layer of 256 feeds no output, so it is no part of the model that is trained
    (minimaxir/keras-cntk-benchmark, test_files/text_generator_keras.py, commit 5c9401c). `implementation` is that
    of `_lstm`.
    """
    ids = keras.Input((sequence_length,), dtype="int32", name="character_ids")
    x = _lstm(128, implementation)(layers.Embedding(characters, 100)(ids))
    auxiliary = layers.Dense(characters, activation="softmax", name="auxiliary")(x)
    main = layers.Dense(characters, activation="softmax", name="main")(_normalized(x, 512))
    model = keras.Model(ids, [main, auxiliary], name="text_generator")
    losses = ["categorical_crossentropy", "categorical_crossentropy"]
    model.compile(optimizer="adam", loss=losses, loss_weights=[1.0, 0.2])
    return model

"""Speech recognizers behind the published measurements.

Each function returns a compiled Keras model and can be named in the MODEL grammar: ``speech.py:jasper``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

__all__ = ["jasper"]

Tensor = Any

# Table 1 of arXiv:1904.03288: kernel, channels and dropout of the ten blocks, in pairs.
BLOCKS = ((11, 256, 0.2), (13, 384, 0.2), (17, 512, 0.2), (21, 640, 0.3), (25, 768, 0.3))


def _conv_norm(x: Tensor, channels: int, kernel: int, **kwargs: Any) -> Tensor:
    x = layers.Conv1D(channels, kernel, padding="same", use_bias=False, **kwargs)(x)
    return layers.BatchNormalization()(x)


def _unit(x: Tensor, channels: int, kernel: int, dropout: float, **kwargs: Any) -> Tensor:
    return layers.Dropout(dropout)(layers.ReLU()(_conv_norm(x, channels, kernel, **kwargs)))


def _dense_residual_block(earlier: Sequence[Tensor], channels: int, kernel: int, dropout: float) -> Tensor:
    """Five convolutions; the outputs of all earlier blocks are projected and added before the last ReLU."""
    x = earlier[-1]
    for _ in range(4):
        x = _unit(x, channels, kernel, dropout)
    shortcuts = [_conv_norm(output, channels, 1) for output in earlier]
    x = layers.Add()([_conv_norm(x, channels, kernel), *shortcuts])
    return layers.Dropout(dropout)(layers.ReLU()(x))


def jasper(*, frames: int = 1680, features: int = 64, characters: int = 29) -> keras.Model:
    """Jasper 10x5 with dense residuals (Li et al., 2019, arXiv:1904.03288, figure 2 and table 1).

    1,680 frames are 16.7 s in steps of 10 ms, to which NVIDIA's benchmark pads every utterance, in multiples
    of 16. CTC is one small kernel there; a cross-entropy a frame stands for it here. NovoGrad keeps one
    number a weight, like the momentum here.
    """
    inputs = keras.Input((frames, features))
    outputs = [_unit(inputs, 256, 11, 0.2, strides=2)]
    for kernel, channels, dropout in (block for block in BLOCKS for _ in range(2)):
        outputs.append(_dense_residual_block(outputs, channels, kernel, dropout))
    x = _unit(outputs[-1], 896, 29, 0.4, dilation_rate=2)
    x = _unit(x, 1024, 1, 0.4)
    model = keras.Model(inputs, layers.Conv1D(characters, 1)(x), name="jasper")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.95), loss=loss)
    return model

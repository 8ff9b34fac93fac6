"""Models of `gpuplan benchmark`, as MODEL references: `gpuplan.profile.benchmark_models:resnet50?image_size=224`.

Published rows name these functions: a change of what one computes needs a new name. Images are in Keras's own
layout (channels last), classifiers end in logits, and nothing is regularized but by the dropout that is said.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

Tensor = Any


def _compiled(model: keras.Model, optimizer: Any = "adam") -> keras.Model:
    """Compile a model whose outputs are logits of integer classes."""
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _compiled_application(name: str, image_size: int, classes: int) -> keras.Model:
    """Build a network of `keras.applications` with random weights, compiled with SGD and momentum."""
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(image_size, image_size, 3), classes=classes, classifier_activation=None
    )
    return _compiled(model, keras.optimizers.SGD(0.01, momentum=0.9))


def resnet50(*, image_size: int = 224, classes: int = 1000) -> keras.Model:
    """ResNet-50 v1, which strides in the first convolution of a block (He et al., 2015, arXiv:1512.03385)."""
    return _compiled_application("ResNet50", image_size, classes)


def mobilenet_v2(*, image_size: int = 224, classes: int = 1000) -> keras.Model:
    """MobileNetV2: depthwise convolutions between narrow ones (Sandler et al., 2018, arXiv:1801.04381)."""
    return _compiled_application("MobileNetV2", image_size, classes)


def efficientnet_b0(*, image_size: int = 224, classes: int = 1000) -> keras.Model:
    """EfficientNetB0: depthwise convolutions, squeeze and excitation (Tan and Le, 2019, arXiv:1905.11946)."""
    return _compiled_application("EfficientNetB0", image_size, classes)


def vgg16(*, image_size: int = 64, classes: int = 200) -> keras.Model:
    """VGG-16: dense 3x3 convolutions and wide products (Simonyan and Zisserman, 2014, arXiv:1409.1556)."""
    return _compiled_application("VGG16", image_size, classes)


def mlp(*, features: int = 784, width: int = 2048, depth: int = 4, classes: int = 10) -> keras.Model:
    """Dense layers with ReLU."""
    inputs = keras.Input((features,))
    x = inputs
    for _ in range(depth):
        x = layers.Dense(width, activation="relu")(x)
    return _compiled(keras.Model(inputs, layers.Dense(classes)(x), name="mlp"))


def lstm_text(
    *, length: int = 200, vocabulary: int = 20_000, embedding: int = 128, units: int = 128
) -> keras.Model:
    """An embedding, one LSTM, and a classifier of two classes."""
    tokens = keras.Input((length,), dtype="int32")
    x = layers.LSTM(units)(layers.Embedding(vocabulary, embedding)(tokens))
    return _compiled(keras.Model(tokens, layers.Dense(2)(x), name="lstm_text"))


class _Positions(layers.Layer):  # type: ignore[misc]
    """Adds a learnt vector for each position."""

    def build(self, input_shape: Any) -> None:
        """Create one vector a position."""
        self.table = self.add_weight(shape=tuple(input_shape[1:]), initializer="normal", name="table")

    def call(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return x + self.table


def _embedded(tokens: Tensor, *, vocabulary: int, width: int) -> Tensor:
    return _Positions()(layers.Embedding(vocabulary, width)(tokens))


def _attention(x: Tensor, *, heads: int, causal: bool) -> Tensor:
    """Attend without dropout of scores, so that Keras may take a fused kernel."""
    return layers.MultiHeadAttention(heads, x.shape[-1] // heads)(x, x, use_causal_mask=causal)


def _feed_forward(x: Tensor) -> Tensor:
    width = x.shape[-1]
    return layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))


def bert_encoder(
    *,
    depth: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 128,
    vocabulary: int = 30_522,
    dropout: float = 0.1,
) -> keras.Model:
    """Encoder of BERT's sizes, normalized after each sum, with a classifier of the first token.

    Devlin et al., 2019, arXiv:1810.04805, but without segments, padding mask and dropout of attention scores.
    """
    tokens = keras.Input((length,), dtype="int32")
    x = layers.LayerNormalization(epsilon=1e-12)(_embedded(tokens, vocabulary=vocabulary, width=width))
    for _ in range(depth):
        y = layers.Dropout(dropout)(_attention(x, heads=heads, causal=False))
        x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, y]))
        y = layers.Dropout(dropout)(_feed_forward(x))
        x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, y]))
    pooled = layers.Dense(width, activation="tanh")(x[:, 0])
    return _compiled(keras.Model(tokens, layers.Dense(2)(pooled), name="bert_encoder"))


def gpt_decoder(
    *, depth: int = 12, width: int = 768, heads: int = 12, length: int = 512, vocabulary: int = 50_257
) -> keras.Model:
    """Causal decoder of GPT-2's sizes that predicts every next token; output weights of its own, no dropout."""
    tokens = keras.Input((length,), dtype="int32")
    x = _embedded(tokens, vocabulary=vocabulary, width=width)
    for _ in range(depth):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, _attention(y, heads=heads, causal=True)])
        x = layers.Add()([x, _feed_forward(layers.LayerNormalization(epsilon=1e-5)(x))])
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    return _compiled(keras.Model(tokens, layers.Dense(vocabulary, use_bias=False)(x), name="gpt_decoder"))


def unet(*, image_size: int = 128, filters: int = 32, depth: int = 4, classes: int = 3) -> keras.Model:
    """U-Net with padding and batch normalization (Ronneberger et al., 2015, arXiv:1505.04597)."""
    inputs = keras.Input((image_size, image_size, 3))
    x, kept = inputs, []
    for level in range(depth):
        kept.append(_double_convolution(x, filters << level))
        x = layers.MaxPooling2D()(kept[-1])
    x = _double_convolution(x, filters << depth)
    for level in reversed(range(depth)):
        x = layers.Conv2DTranspose(filters << level, 2, strides=2)(x)
        x = _double_convolution(layers.Concatenate()([x, kept[level]]), filters << level)
    return _compiled(keras.Model(inputs, layers.Conv2D(classes, 1)(x), name="unet"))


def _double_convolution(x: Tensor, filters: int) -> Tensor:
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return x

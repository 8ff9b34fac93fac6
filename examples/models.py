"""Functions that build models, to be named as `examples/models.py:vgg13?image_size=128&classes=100`."""

import keras
from keras import layers


def vgg13(image_size=224, classes=1000):
    """VGG with two convolutions in each of five blocks; not compiled."""
    model = keras.Sequential(name="vgg13")
    model.add(keras.Input(shape=(image_size, image_size, 3)))
    for filters in (64, 128, 256, 512, 512):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(4096, activation="relu"))
    model.add(layers.Dense(4096, activation="relu"))
    model.add(layers.Dense(classes, activation="softmax"))
    return model


def lstm_text(length=200, vocabulary=20_000, units=64):
    """An embedding and one LSTM, for one of two classes; not compiled."""
    inputs = keras.Input(shape=(length,), dtype="int32")
    x = layers.Embedding(vocabulary, 128)(inputs)
    outputs = layers.Dense(1, activation="sigmoid")(layers.LSTM(units)(x))
    return keras.Model(inputs, outputs, name="lstm_text")


def transformer(*, depth=12, width=768, heads=12, length=1024, vocabulary=50_257, optimizer="adam"):
    """A decoder-only Transformer like GPT-2 (124 million parameters by default), compiled."""
    tokens = keras.Input(shape=(length,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(tokens)
    for _ in range(depth):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(width)(y)])
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    logits = layers.Dense(vocabulary, use_bias=False)(x)
    model = keras.Model(tokens, logits, name="transformer")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def transformer_7b(length=2048):
    """Thirty-two blocks, 4,096 wide: 6.7 billion parameters, more than a laptop could hold."""
    return transformer(depth=32, width=4096, heads=32, length=length, vocabulary=32_000)


def quantized_transformer_7b(length=2048, mode="int8", rank=8):
    """The same for fine-tuning: integers that stay as they are, and LoRA beside those of `Dense` layers."""
    model = transformer_7b(length)
    model.quantize(mode)
    for layer in model.layers:
        layer.trainable = isinstance(layer, layers.Dense)
        if layer.trainable:
            layer.enable_lora(rank)
    return model

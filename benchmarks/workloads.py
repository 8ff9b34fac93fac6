"""Models to be timed, each a function to be named as `benchmarks/workloads.py:unet?image_size=256`.

They fill what `keras.applications` and `examples/models.py` leave open. All are compiled, so that what is timed
and what is predicted have the same loss and optimizer. Optimizers take small steps: the targets are random.
"""

import keras
from keras import layers


def mlp(*, width=4096, depth=6, features=784, classes=10):
    """Dense layers, one after the other: large matrix products and Adam's traffic."""
    inputs = keras.Input((features,))
    x = inputs
    for _ in range(depth):
        x = layers.Dense(width, activation="relu")(x)
    return _classifier(inputs, layers.Dense(classes)(x), "adam", name="mlp")


def tabular(*, fields=26, vocabulary=100_000, embedding=32, numbers=13):
    """Wide and deep: an embedding for each categorical field, then a small MLP, for click prediction."""
    categories = keras.Input((fields,), dtype="int32")
    dense = keras.Input((numbers,))
    x = layers.Flatten()(layers.Embedding(vocabulary, embedding)(categories))
    x = layers.Concatenate()([x, layers.Dense(64, activation="relu")(dense)])
    for width in (1024, 512, 256):
        x = layers.Dropout(0.1)(layers.Dense(width, activation="relu")(x))
    model = keras.Model([categories, dense], layers.Dense(1, activation="sigmoid")(x), name="tabular")
    model.compile(optimizer=keras.optimizers.Adagrad(1e-3), loss="binary_crossentropy")
    return model


def cifar_cnn(*, image_size=32, classes=10, width=64):
    """Six convolutions with batch normalization on small images."""
    inputs = keras.Input((image_size, image_size, 3))
    x = inputs
    for filters in (width, 2 * width, 4 * width):
        x = _conv_bn(_conv_bn(x, filters), filters)
        x = layers.MaxPooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return _classifier(inputs, layers.Dense(classes)(x), "adam", name="cifar_cnn")


def wide_resnet(*, blocks=4, widen=4, image_size=32, classes=100):
    """Wide residual network with pre-activation (Zagoruyko and Komodakis, 2016), WRN-28-4 by default."""
    inputs = keras.Input((image_size, image_size, 3))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    for stage, filters in enumerate((16 * widen, 32 * widen, 64 * widen)):
        for block in range(blocks):
            x = _wide_block(x, filters, strides=2 if stage > 0 and block == 0 else 1)
    x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(layers.BatchNormalization()(x)))
    return _classifier(inputs, layers.Dense(classes)(x), "sgd", name="wide_resnet")


def unet(*, image_size=256, width=64, depth=4, classes=2):
    """U-Net with batch normalization and transposed convolutions, for segmentation."""
    inputs = keras.Input((image_size, image_size, 3))
    x, skips = inputs, []
    for level in range(depth):
        x = _conv_bn(_conv_bn(x, width << level), width << level)
        skips.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = _conv_bn(_conv_bn(x, width << depth), width << depth)
    for level in reversed(range(depth)):
        x = layers.Conv2DTranspose(width << level, 2, strides=2)(x)
        x = layers.Concatenate()([x, skips[level]])
        x = _conv_bn(_conv_bn(x, width << level), width << level)
    return _classifier(inputs, layers.Conv2D(classes, 1)(x), "adam", name="unet")


def unet_3d(*, size=64, width=16, depth=3, classes=4):
    """U-Net on volumes."""
    inputs = keras.Input((size, size, size, 1))
    x, skips = inputs, []
    for level in range(depth):
        x = layers.Conv3D(width << level, 3, padding="same", activation="relu")(x)
        x = layers.Conv3D(width << level, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling3D(2)(x)
    x = layers.Conv3D(width << depth, 3, padding="same", activation="relu")(x)
    for level in reversed(range(depth)):
        x = layers.Concatenate()([layers.UpSampling3D(2)(x), skips[level]])
        x = layers.Conv3D(width << level, 3, padding="same", activation="relu")(x)
    return _classifier(inputs, layers.Conv3D(classes, 1)(x), "adam", name="unet_3d")


def super_resolution(*, image_size=48, width=64, blocks=16, scale=2):
    """Residual convolutions without normalization, then pixels from channels (after EDSR: Lim et al., 2017)."""
    inputs = keras.Input((image_size, image_size, 3))
    head = layers.Conv2D(width, 3, padding="same")(inputs)
    x = head
    for _ in range(blocks):
        y = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv2D(width, 3, padding="same")(y)])
    x = layers.Add()([layers.Conv2D(width, 3, padding="same")(x), head])
    x = layers.Conv2DTranspose(width, 2 * scale, strides=scale, padding="same")(x)
    return _regressor(inputs, layers.Conv2D(3, 3, padding="same")(x), name="super_resolution")


def generator(*, latent=128, width=1024):
    """Transposed convolutions from noise to 64 by 64 pixels (after DCGAN: Radford et al., 2016)."""
    inputs = keras.Input((latent,))
    x = layers.Reshape((4, 4, width))(layers.Dense(16 * width)(inputs))
    for filters in (width // 2, width // 4, width // 8):
        x = layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh")(x)
    return _regressor(inputs, x, name="generator")


def audio_tcn(*, length=16_000, width=64, layers_per_stack=8, stacks=2, classes=35):
    """Dilated causal convolutions over one second of sound (after WaveNet: van den Oord et al., 2016)."""
    inputs = keras.Input((length, 1))
    x = layers.Conv1D(width, 3, strides=4, padding="same")(inputs)
    for layer in range(stacks * layers_per_stack):
        dilation = 2 ** (layer % layers_per_stack)
        y = layers.Conv1D(width, 3, padding="causal", dilation_rate=dilation, activation="relu")(x)
        x = layers.Add()([x, layers.Conv1D(width, 1)(y)])
    x = layers.GlobalAveragePooling1D()(x)
    return _classifier(inputs, layers.Dense(classes)(x), "adam", name="audio_tcn")


def lstm_language(*, length=35, vocabulary=10_000, units=650, depth=2):
    """Stacked LSTMs that predict the next word (the medium size of Zaremba et al., 2014)."""
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, units)(tokens)
    for _ in range(depth):
        x = layers.LSTM(units, return_sequences=True)(layers.Dropout(0.5)(x))
    return _classifier(tokens, layers.Dense(vocabulary)(x), "sgd", name="lstm_language")


def lstm_tagger(*, length=100, vocabulary=30_000, units=256, tags=17):
    """A bidirectional LSTM that names the part of speech of each word."""
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, 128)(tokens)
    x = layers.Bidirectional(layers.LSTM(units, return_sequences=True))(x)
    return _classifier(tokens, layers.Dense(tags)(x), "adam", name="lstm_tagger")


def gru_series(*, length=168, features=16, units=128, horizon=24):
    """Two GRUs over a week of hours, forecasting a day."""
    inputs = keras.Input((length, features))
    x = layers.GRU(units)(layers.GRU(units, return_sequences=True)(inputs))
    return _regressor(inputs, layers.Dense(horizon)(x), name="gru_series")


def encoder(*, depth=12, width=768, heads=12, length=128, vocabulary=30_522, classes=2):
    """A Transformer encoder with BERT's sizes (Devlin et al., 2018) and one class a text."""
    tokens = keras.Input((length,), dtype="int32")
    x = Positions()(layers.Embedding(vocabulary, width)(tokens))
    x = layers.Dropout(0.1)(layers.LayerNormalization(epsilon=1e-12)(x))
    for _ in range(depth):
        y = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(x, x)
        x = layers.LayerNormalization(epsilon=1e-12)(x + layers.Dropout(0.1)(y))
        y = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization(epsilon=1e-12)(x + layers.Dropout(0.1)(y))
    pooled = layers.Dense(width, activation="tanh")(x[:, 0])
    return _classifier(tokens, layers.Dense(classes)(pooled), "adamw", name="encoder")


def decoder(*, depth=8, width=1024, heads=16, length=1024, vocabulary=32_000):
    """A decoder with RMS normalization and gated units, after Llama (Touvron et al., 2023), without rotation."""
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(tokens)
    hidden = (8 * width // 3 + 127) // 128 * 128
    for _ in range(depth):
        y = layers.RMSNormalization()(x)
        attention = layers.MultiHeadAttention(heads, width // heads, use_bias=False)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.RMSNormalization()(x)
        gate = layers.Dense(hidden, activation="silu", use_bias=False)(y)
        x = x + layers.Dense(width, use_bias=False)(gate * layers.Dense(hidden, use_bias=False)(y))
    logits = layers.Dense(vocabulary, use_bias=False)(layers.RMSNormalization()(x))
    return _classifier(tokens, logits, "adamw", name="decoder")


def translation(*, depth=6, width=512, heads=8, length=64, vocabulary=32_000):
    """Encoder and decoder with the base sizes of Vaswani et al. (2017); no positions, no dropout."""
    source = keras.Input((length,), dtype="int32")
    target = keras.Input((length,), dtype="int32")
    embedding = layers.Embedding(vocabulary, width)
    memory = embedding(source)
    for _ in range(depth):
        memory = layers.LayerNormalization()(memory + _attention(heads, width)(memory, memory))
        memory = _feed_forward(memory, width)
    x = embedding(target)
    for _ in range(depth):
        x = layers.LayerNormalization()(x + _attention(heads, width)(x, x, use_causal_mask=True))
        x = layers.LayerNormalization()(x + _attention(heads, width)(x, memory))
        x = _feed_forward(x, width)
    return _classifier([source, target], layers.Dense(vocabulary)(x), "adam", name="translation")


def vision_transformer(*, image_size=224, patch=16, depth=12, width=384, heads=6, classes=1000):
    """Vision Transformer, ViT-S/16 by default (Dosovitskiy et al., 2021), with pooling, no class token."""
    inputs = keras.Input((image_size, image_size, 3))
    tokens = (image_size // patch) ** 2
    x = layers.Conv2D(width, patch, strides=patch)(inputs)
    x = Positions()(layers.Reshape((tokens, width))(x))
    for _ in range(depth):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return _classifier(inputs, layers.Dense(classes)(x), "adamw", name="vision_transformer")


def mlp_mixer(*, image_size=224, patch=16, depth=8, width=512, classes=1000):
    """MLP-Mixer, S/16 by default (Tolstikhin et al., 2021)."""
    inputs = keras.Input((image_size, image_size, 3))
    tokens = (image_size // patch) ** 2
    x = layers.Reshape((tokens, width))(layers.Conv2D(width, patch, strides=patch)(inputs))
    for _ in range(depth):
        y = layers.Permute((2, 1))(layers.LayerNormalization(epsilon=1e-6)(x))
        y = layers.Dense(tokens)(layers.Dense(width // 2, activation="gelu")(y))
        x = x + layers.Permute((2, 1))(y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return _classifier(inputs, layers.Dense(classes)(x), "adamw", name="mlp_mixer")


# --- parts ------------------------------------------------------------------------------------------------


class Positions(layers.Layer):
    """Adds one learnt vector a position."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=input_shape[1:], initializer="random_normal", name="table")

    def call(self, x):
        return x + keras.ops.cast(self.table, x.dtype)


def _conv_bn(x, filters):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    return layers.Activation("relu")(layers.BatchNormalization()(x))


def _wide_block(x, filters, *, strides):
    y = layers.Activation("relu")(layers.BatchNormalization()(x))
    short = x
    if strides > 1 or x.shape[-1] != filters:
        short = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(y)
    y = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(y)
    y = layers.Activation("relu")(layers.BatchNormalization()(y))
    return layers.Add()([layers.Conv2D(filters, 3, padding="same", use_bias=False)(y), short])


def _attention(heads, width):
    return layers.MultiHeadAttention(heads, width // heads)


def _feed_forward(x, width):
    y = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(x))
    return layers.LayerNormalization()(x + y)


def _optimizer(name):
    if name == "sgd":
        return keras.optimizers.SGD(1e-3, momentum=0.9)
    return {"adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW}[name](1e-5)


def _classifier(inputs, logits, optimizer, *, name):
    """Return the compiled model; logits are float32 whatever the policy, as Keras's guides advise."""
    logits = layers.Activation("linear", dtype="float32")(logits)
    model = keras.Model(inputs, logits, name=name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=_optimizer(optimizer), loss=loss)
    return model


def _regressor(inputs, outputs, *, name):
    outputs = layers.Activation("linear", dtype="float32")(outputs)
    model = keras.Model(inputs, outputs, name=name)
    model.compile(optimizer=_optimizer("adam"), loss="mean_squared_error")
    return model

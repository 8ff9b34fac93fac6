"""Small networks behind the published measurements: MNASNet, ShuffleNet v2, MobileNet v3."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers
from vision_blocks import bias_conv, conv_bn, depthwise_bn, finish, head, image, squeeze_excite

__all__ = ["mnasnet", "mobilenet_v3_large", "mobilenet_v3_small", "shufflenet_v2"]

Tensor = Any
V3Row = tuple[int, int, int, bool, str, int]  # kernel, hidden, channels, squeeze, activation, strides


def _divisible(channels: float, divisor: int = 8) -> int:
    """Round to a multiple, never more than 10 % down."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def _inverted(x: Tensor, channels: int, kernel: int, strides: int, expansion: int) -> Tensor:
    y = depthwise_bn(conv_bn(x, x.shape[-1] * expansion, 1), kernel, strides)
    y = conv_bn(y, channels, 1, activation=None)
    return layers.Add()([x, y]) if strides == 1 and x.shape[-1] == channels else y


MNASNET = (
    (24, 3, 2, 3, 3),
    (40, 5, 2, 3, 3),
    (80, 5, 2, 6, 3),
    (96, 3, 1, 6, 2),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)


def mnasnet(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", alpha: float = 1.0
) -> keras.Model:
    """MNASNet-B1 (Tan et al., 2018, arXiv:1807.11626) of torchvision, depth multiplier `alpha`."""
    inputs = image(image_size)
    x = conv_bn(inputs, _divisible(32 * alpha), 3, 2)
    x = conv_bn(depthwise_bn(x, 3), _divisible(16 * alpha), 1, activation=None)
    for channels, kernel, strides, expansion, depth in MNASNET:
        for i in range(depth):
            x = _inverted(x, _divisible(channels * alpha), kernel, strides if i == 0 else 1, expansion)
    x = conv_bn(x, 1280, 1)
    return finish(inputs, head(x, classes, dropout=0.2), f"mnasnet_{alpha}", optimizer)


def _shuffle(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels."""
    height, width, channels = x.shape[1:]
    x = layers.Permute((1, 3, 2))(layers.Reshape((height * width, 2, channels // 2))(x))
    return layers.Reshape((height, width, channels))(x)


def _split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _shuffle_unit(x: Tensor, channels: int, strides: int) -> Tensor:
    half = channels // 2
    kept, y = (x, x) if strides == 2 else _split_halves(x)
    y = conv_bn(depthwise_bn(conv_bn(y, half, 1), 3, strides, activation=None), half, 1)
    if strides == 2:
        kept = conv_bn(depthwise_bn(kept, 3, 2, activation=None), half, 1)
    return _shuffle(layers.Concatenate()([kept, y]))


SHUFFLENET_CHANNELS = {
    0.5: (48, 96, 192, 1024), 1.0: (116, 232, 464, 1024), 1.5: (176, 352, 704, 1024),
    2.0: (244, 488, 976, 2048),
}  # fmt: skip


def shufflenet_v2(
    image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum", width: float = 1.0
) -> keras.Model:
    """ShuffleNet v2 (Ma et al., 2018, arXiv:1807.11164) of torchvision; `width` is 0.5, 1.0, 1.5 or 2.0."""
    *stages, last = SHUFFLENET_CHANNELS[width]
    inputs = image(image_size)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(conv_bn(inputs, 24, 3, 2))
    for channels, depth in zip(stages, (4, 8, 4), strict=True):
        for i in range(depth):
            x = _shuffle_unit(x, channels, 2 if i == 0 else 1)
    x = conv_bn(x, last, 1)
    return finish(inputs, head(x, classes), f"shufflenet_v2_{width}", optimizer)


def _v3_block(x: Tensor, row: V3Row) -> Tensor:
    kernel, hidden, channels, se, activation, strides = row
    y = x if hidden == x.shape[-1] else conv_bn(x, hidden, 1, activation=activation)
    y = depthwise_bn(y, kernel, strides, activation=activation)
    if se:
        y = squeeze_excite(y, _divisible(hidden / 4), gate="hard_sigmoid")
    y = conv_bn(y, channels, 1, activation=None)
    return layers.Add()([x, y]) if strides == 1 and x.shape[-1] == channels else y


RE, HS = "relu", "hard_swish"
V3_LARGE = (
    (3, 16, 16, False, RE, 1), (3, 64, 24, False, RE, 2), (3, 72, 24, False, RE, 1),
    (5, 72, 40, True, RE, 2), (5, 120, 40, True, RE, 1), (5, 120, 40, True, RE, 1),
    (3, 240, 80, False, HS, 2), (3, 200, 80, False, HS, 1), (3, 184, 80, False, HS, 1),
    (3, 184, 80, False, HS, 1), (3, 480, 112, True, HS, 1), (3, 672, 112, True, HS, 1),
    (5, 672, 160, True, HS, 2), (5, 960, 160, True, HS, 1), (5, 960, 160, True, HS, 1),
)  # fmt: skip
V3_SMALL = (
    (3, 16, 16, True, RE, 2), (3, 72, 24, False, RE, 2), (3, 88, 24, False, RE, 1),
    (5, 96, 40, True, HS, 2), (5, 240, 40, True, HS, 1), (5, 240, 40, True, HS, 1),
    (5, 120, 48, True, HS, 1), (5, 144, 48, True, HS, 1), (5, 288, 96, True, HS, 2),
    (5, 576, 96, True, HS, 1), (5, 576, 96, True, HS, 1),
)  # fmt: skip


def _mobilenet_v3(
    name: str, rows: tuple[V3Row, ...], widths: tuple[int, int], *, image_size: int, classes: int, optimizer: str
) -> keras.Model:
    hidden, features = widths
    inputs = image(image_size)
    x = conv_bn(inputs, 16, 3, 2, activation=HS)
    for row in rows:
        x = _v3_block(x, row)
    x = layers.GlobalAveragePooling2D(keepdims=True)(conv_bn(x, hidden, 1, activation=HS))
    x = layers.Flatten()(bias_conv(x, features, 1, activation=HS))
    outputs = layers.Dense(classes, activation="softmax")(layers.Dropout(0.2)(x))
    return finish(inputs, outputs, name, optimizer)


def mobilenet_v3_large(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """MobileNet v3 large (Howard et al., 2019, arXiv:1905.02244), timm's mobilenetv3_large_100."""
    name, widths = "mobilenet_v3_large", (960, 1280)
    return _mobilenet_v3(name, V3_LARGE, widths, image_size=image_size, classes=classes, optimizer=optimizer)


def mobilenet_v3_small(image_size: int = 224, classes: int = 1000, optimizer: str = "sgd_momentum") -> keras.Model:
    """MobileNet v3 small (Howard et al., 2019), timm's mobilenetv3_small_100."""
    name, widths = "mobilenet_v3_small", (576, 1024)
    return _mobilenet_v3(name, V3_SMALL, widths, image_size=image_size, classes=classes, optimizer=optimizer)

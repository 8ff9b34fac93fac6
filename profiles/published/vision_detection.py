"""Single-shot detectors behind the published measurements: SSD300, SSD320 with a pyramid, EfficientDet.

Two-stage detectors (Mask R-CNN) are not here: proposals, non-maximum suppression and sampling have shapes
that depend on the data. Targets are matched to anchors before the step, which sees dense targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers, ops
from vision_blocks import conv_bn, image, make_optimizer, norm
from vision_efficientnet import B0_ROWS, mbconv
from vision_resnet import basic_block, bottleneck

__all__ = ["efficientdet_d0", "focal_loss", "multibox_loss", "ssd300", "ssd320_fpn"]

Tensor = Any


def multibox_loss(truth: Tensor, predicted: Tensor) -> Tensor:
    """Return the SSD loss (Liu et al., 2015, arXiv:1512.02325), three hard negatives to a positive.

    Args:
        truth: (batch, anchors, 4 + classes), boxes, then one-hot classes with the background first.
        predicted: The same, with logits for classes.
    """
    positive = 1.0 - truth[..., 4]
    absolute = ops.abs(truth[..., :4] - predicted[..., :4])
    distance = ops.sum(ops.where(absolute < 1.0, 0.5 * ops.square(absolute), absolute - 0.5), axis=-1)
    entropy = keras.losses.categorical_crossentropy(truth[..., 4:], predicted[..., 4:], from_logits=True)
    order = ops.argsort(-entropy * (1.0 - positive), axis=1)
    count = ops.sum(positive, axis=1, keepdims=True)
    negative = ops.cast(ops.cast(ops.argsort(order, axis=1), "float32") < 3.0 * count, "float32")
    total = ops.sum(distance * positive + entropy * (positive + negative), axis=1)
    return ops.mean(total / ops.maximum(count[:, 0], 1e-6))


def focal_loss(truth: Tensor, predicted: Tensor) -> Tensor:
    """Return focal loss on sigmoid scores and Huber loss on boxes (Lin et al., 2017, arXiv:1708.02002)."""
    positive = ops.max(truth[..., 4:], axis=-1)
    boxes = ops.mean(ops.square(truth[..., :4] - predicted[..., :4]), axis=-1) * positive
    scores = keras.losses.binary_focal_crossentropy(truth[..., 4:], predicted[..., 4:], from_logits=True)
    return (ops.sum(boxes) + ops.sum(scores)) / ops.maximum(ops.sum(positive), 1.0)


def _detector(
    name: str,
    inputs: Tensor,
    boxes: Sequence[Tensor],
    scores: Sequence[Tensor],
    *,
    classes: int,
    loss: Any,
    optimizer: str,
) -> keras.Model:
    """Return a model whose output is (anchors, 4 + classes), boxes first."""
    all_boxes = layers.Concatenate(axis=1)([layers.Reshape((-1, 4))(b) for b in boxes])
    all_scores = layers.Concatenate(axis=1)([layers.Reshape((-1, classes))(s) for s in scores])
    model = keras.Model(inputs, layers.Concatenate()([all_boxes, all_scores]), name=name)
    model.compile(optimizer=make_optimizer(optimizer), loss=loss)
    return model


def _ssd_backbone(inputs: Tensor, backbone: str) -> Tensor:
    """Return features of a ResNet's first three stages, the third without its stride: 38 x 38 positions."""
    block, depths = (basic_block, (3, 4, 6)) if backbone == "resnet34" else (bottleneck, (3, 4, 6))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(conv_bn(inputs, 64, 7, 2))
    for stage, (depth, channels) in enumerate(zip(depths, (64, 128, 256), strict=True)):
        for i in range(depth):
            x = block(x, channels, 2 if i == 0 and stage == 1 else 1)
    return x


EXTRA_BLOCKS = ((256, 512, 2), (256, 512, 2), (128, 256, 2), (128, 256, 1), (128, 256, 1))


def ssd300(
    image_size: int = 300, classes: int = 81, optimizer: str = "sgd_momentum", backbone: str = "resnet50"
) -> keras.Model:
    """SSD300 (Liu et al., 2015, arXiv:1512.02325) on a ResNet-50 (NVIDIA) or ResNet-34 (MLPerf v0.5)."""
    inputs = image(image_size)
    features = [_ssd_backbone(inputs, backbone)]
    for inner, outer, strides in EXTRA_BLOCKS:
        x = conv_bn(features[-1], inner, 1)
        features.append(conv_bn(x, outer, 3, strides, padding="same" if strides == 2 else "valid"))
    anchors = (4, 6, 6, 6, 4, 4)
    boxes = [layers.Conv2D(n * 4, 3, padding="same")(f) for n, f in zip(anchors, features, strict=True)]
    scores = [
        layers.Conv2D(n * classes, 3, padding="same")(f) for n, f in zip(anchors, features, strict=True)
    ]
    return _detector(
        f"ssd300_{backbone}", inputs, boxes, scores, classes=classes, loss=multibox_loss, optimizer=optimizer
    )


def _pyramid_backbone(inputs: Tensor) -> list[Tensor]:
    """Return strides 8, 16, 32 of TF-Slim's ResNet-50: each stage's output before it subsamples."""
    x = layers.MaxPooling2D(3, strides=2, padding="same")(conv_bn(inputs, 64, 7, 2))
    outputs = []
    for depth, channels in zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True):
        if outputs:
            x = layers.MaxPooling2D(1, strides=2)(x)
        for _ in range(depth):
            x = bottleneck(x, channels, 1)
        outputs.append(x)
    return outputs[1:]


def _pyramid(features: Sequence[Tensor], channels: int) -> list[Tensor]:
    """Merge features top down (Lin et al., 2016, arXiv:1612.03144), then add two coarser levels."""
    laterals = [layers.Conv2D(channels, 1)(f) for f in features]
    merged = [laterals[-1]]
    for lateral in laterals[-2::-1]:
        merged.append(layers.Add()([lateral, layers.UpSampling2D(2)(merged[-1])]))
    levels = [conv_bn(x, channels, 3) for x in merged[:-3:-1]] + [merged[0]]
    for _ in range(2):
        levels.append(conv_bn(levels[-1], channels, 3, 2))
    return levels


def _shared_tower(
    levels: Sequence[Tensor], depth: int, make: Callable[[], layers.Layer], act: str
) -> list[Tensor]:
    """Apply convolutions whose weights all levels share; each level normalizes for itself."""
    xs = list(levels)
    for _ in range(depth):
        shared = make()
        xs = [norm(shared(x), act) for x in xs]
    return xs


def ssd320_fpn(image_size: int = 320, classes: int = 91, optimizer: str = "sgd_momentum") -> keras.Model:
    """SSD on ResNet-50 with a feature pyramid and shared towers of four layers, as NVIDIA trains it."""
    inputs = image(image_size)
    levels = _pyramid(_pyramid_backbone(inputs), 256)
    make = lambda: layers.Conv2D(256, 3, padding="same", use_bias=False)  # noqa: E731
    box, score = layers.Conv2D(6 * 4, 3, padding="same"), layers.Conv2D(6 * classes, 3, padding="same")
    boxes = [box(x) for x in _shared_tower(levels, 4, make, "relu6")]
    scores = [score(x) for x in _shared_tower(levels, 4, make, "relu6")]
    return _detector(
        "ssd320_fpn", inputs, boxes, scores, classes=classes, loss=focal_loss, optimizer=optimizer
    )


def _b0_features(inputs: Tensor) -> list[Tensor]:
    """Return EfficientNet-B0's outputs at strides 8, 16, 32."""
    x = conv_bn(inputs, 32, 3, 2, activation="silu")
    outputs = []
    for row, (kernel, strides, expansion, channels, depth) in enumerate(B0_ROWS):
        for i in range(depth):
            x = mbconv(x, kernel, strides if i == 0 else 1, expansion, channels)
        if row in (2, 4, 6):
            outputs.append(x)
    return outputs


class FastFusion(layers.Layer):  # type: ignore[misc]
    """Average inputs of one shape with learnt weights that stay positive (Tan et al., 2019, equation 3)."""

    def build(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.weights_ = self.add_weight(shape=(len(shapes),), initializer="ones", name="fusion")

    def call(self, xs: Sequence[Tensor]) -> Tensor:
        weights = ops.relu(ops.cast(self.weights_, xs[0].dtype))
        total = ops.sum(weights) + 1e-4
        return sum(x * weights[i] / total for i, x in enumerate(xs))


def _fit(x: Tensor, channels: int) -> Tensor:
    """Bring a backbone feature to the pyramid's channels."""
    return x if x.shape[-1] == channels else norm(layers.Conv2D(channels, 1)(x), None)


def _fuse(xs: Sequence[Tensor], channels: int) -> Tensor:
    x = layers.Activation("silu")(FastFusion()(list(xs)))
    x = layers.SeparableConv2D(channels, 3, padding="same")(x)
    return norm(x, None)


def _down(x: Tensor) -> Tensor:
    return layers.MaxPooling2D(3, strides=2, padding="same")(x)


def _bifpn(levels: Sequence[Tensor], channels: int) -> list[Tensor]:
    """Return five levels after one top-down and one bottom-up pass; each use of an input projects it anew."""
    tops = [levels[-1]]
    for level in levels[-2::-1]:
        tops.append(_fuse([_fit(level, channels), layers.UpSampling2D(2)(tops[-1])], channels))
    tops.reverse()
    outputs = [tops[0]]
    for level, top in zip(levels[1:-1], tops[1:-1], strict=True):
        outputs.append(_fuse([_fit(level, channels), top, _down(outputs[-1])], channels))
    return [*outputs, _fuse([levels[-1], _down(outputs[-1])], channels)]


def efficientdet_d0(image_size: int = 512, classes: int = 90, optimizer: str = "sgd_momentum") -> keras.Model:
    """EfficientDet-D0 (Tan et al., 2019, arXiv:1911.09070): three BiFPN cells, 64 channels, nine anchors."""
    inputs = image(image_size)
    levels = _b0_features(inputs)
    levels.append(_down(_fit(levels[-1], 64)))
    levels.append(_down(levels[-1]))
    for _ in range(3):
        levels = _bifpn(levels, 64)
    make = lambda: layers.SeparableConv2D(64, 3, padding="same")  # noqa: E731
    box = layers.SeparableConv2D(9 * 4, 3, padding="same")
    score = layers.SeparableConv2D(9 * classes, 3, padding="same")
    boxes = [box(x) for x in _shared_tower(levels, 3, make, "silu")]
    scores = [score(x) for x in _shared_tower(levels, 3, make, "silu")]
    return _detector(
        "efficientdet_d0", inputs, boxes, scores, classes=classes, loss=focal_loss, optimizer=optimizer
    )

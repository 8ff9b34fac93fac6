"""Single-shot detectors behind the published measurements: SSD300, SSD320 with a pyramid, EfficientDet.

Two-stage detectors (Mask R-CNN) are not here: proposals, non-maximum suppression and sampling have shapes
that depend on the data. Targets are matched to anchors before the step, which sees dense targets, but for SSD320:
NVIDIA's script matches them within the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers, ops
from vision_blocks import conv_bn, image, make_optimizer, norm
from vision_efficientnet import B0_ROWS, mbconv
from vision_resnet import basic_block, bottleneck

__all__ = [
    "MatchedFocalLoss", "assign_targets", "efficientdet_d0", "focal_loss", "multibox_loss", "ssd300", "ssd320_fpn",
]  # fmt: skip

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


BOXES = 100  # of an image, filled up: `max_number_of_boxes`, `unpad_groundtruth_tensors: false`
# A scope of operations that are kernels of their own on TensorFlow without XLA: `COMPOSED` of the tracer's scopes.
COMPOSED = "gpuplan_composed_tensorflow"
CODE_SCALES = (10.0, 10.0, 5.0, 5.0)


def _split_sides(boxes: Tensor) -> list[Tensor]:
    """Return the four sides of boxes, each (boxes, 1)."""
    return list(ops.split(boxes, 4, axis=1))


def _areas(boxes: Tensor) -> Tensor:
    top, left, bottom, right = _split_sides(boxes)
    return ops.squeeze((bottom - top) * (right - left), 1)


def _overlaps(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Return intersection over union of each box with each anchor, (boxes, anchors)."""
    top, left, bottom, right = _split_sides(boxes)
    anchor_sides = [ops.transpose(side) for side in _split_sides(anchors)]
    heights = ops.maximum(0.0, ops.minimum(bottom, anchor_sides[2]) - ops.maximum(top, anchor_sides[0]))
    widths = ops.maximum(0.0, ops.minimum(right, anchor_sides[3]) - ops.maximum(left, anchor_sides[1]))
    shared = heights * widths
    unions = ops.expand_dims(_areas(boxes), 1) + ops.expand_dims(_areas(anchors), 0) - shared
    return ops.where(ops.equal(shared, 0.0), ops.zeros_like(shared), ops.divide(shared, unions))


def _set_where(values: Tensor, chosen: Tensor, value: int) -> Tensor:
    chosen = ops.cast(chosen, values.dtype)
    return values * (1 - chosen) + value * chosen


def _match(overlaps: Tensor, valid: Tensor) -> Tensor:
    """Return the box of each anchor, -1 for none, (anchors); a valid box gets the anchor that it overlaps most."""
    matches, best = ops.argmax(overlaps, axis=0), ops.max(overlaps, axis=0)
    below = ops.greater(0.5, best)
    between = ops.logical_and(ops.greater_equal(best, 0.5), ops.greater(0.5, best))
    matches = _set_where(_set_where(matches, below, -1), between, -2)
    forced = ops.one_hot(ops.argmax(overlaps, axis=1), overlaps.shape[1])
    forced = forced * ops.cast(ops.expand_dims(valid, -1), "float32")
    is_forced = ops.cast(ops.max(forced, axis=0), "bool")
    return ops.where(is_forced, ops.argmax(forced, axis=0), matches)


def _gather(values: Tensor, matches: Tensor, others: Tensor) -> Tensor:
    """Return the values of matched boxes by a product with one-hot rows, (anchors, values)."""
    values = ops.concatenate([ops.stack([others, others]), values], axis=0)
    picked = ops.one_hot(ops.maximum(matches + 2, 0), values.shape[0])
    return ops.matmul(picked, ops.reshape(values, (values.shape[0], -1)))


def _centers(boxes: Tensor) -> list[Tensor]:
    """Return vertical and horizontal centre, height and width of boxes, each (boxes)."""
    top, left, bottom, right = ops.unstack(ops.transpose(boxes), 4, axis=0)
    width, height = right - left, bottom - top
    return [top + height / 2.0, left + width / 2.0, height, width]


def _encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Return the codes of boxes relative to their anchors, (anchors, 4)."""
    y_anchor, x_anchor, *anchor_sizes = _centers(anchors)
    y, x, *sizes = _centers(boxes)
    anchor_height, anchor_width = (size + 1e-8 for size in anchor_sizes)
    height, width = (size + 1e-8 for size in sizes)
    codes = [
        (y - y_anchor) / anchor_height,
        (x - x_anchor) / anchor_width,
        ops.log(height / anchor_height),
        ops.log(width / anchor_width),
    ]
    return ops.transpose(ops.stack([c * scale for c, scale in zip(codes, CODE_SCALES, strict=True)]))


def assign_targets(
    boxes: Tensor, labels: Tensor, weights: Tensor, anchors: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the targets of the anchors of one image: scores, their weights, box codes, their weights.

    Operation by operation `TargetAssigner.assign` with `ArgMaxMatcher`, `IouSimilarity` and `FasterRcnnBoxCoder`
    as configs/ssd320_bench.config sets them (NVIDIA/DeepLearningExamples@729963dd47e7, TensorFlow/Detection/SSD,
    models/research/object_detection/core/target_assigner.py, core/matcher.py, matchers/argmax_matcher.py,
    core/box_list_ops.py, box_coders/faster_rcnn_box_coder.py). The script repeats it for each image of a batch.

    Args:
        boxes: (boxes, 4): top, left, bottom, right.
        labels: (boxes, classes), one-hot.
        weights: (boxes), 0 for what fills up.
        anchors: (anchors, 4).
    """
    matches = _match(_overlaps(boxes, anchors), ops.greater(weights, 0.0))
    codes = _encode(_gather(boxes, matches, ops.zeros((4,))), anchors)
    matched = ops.expand_dims(ops.greater_equal(matches, 0), -1)
    codes = ops.where(matched, codes, ops.tile(ops.zeros((1, 4)), (anchors.shape[0], 1)))
    scores = _gather(labels, matches, ops.zeros((labels.shape[1],)))
    box_weights = _gather(weights, matches, ops.zeros(()))
    score_weights = ops.tile(_gather(weights, matches, ops.ones(())), (1, labels.shape[1]))
    return scores, score_weights, codes, box_weights


class MatchedFocalLoss(layers.Layer):  # type: ignore[misc]
    """Focal and Huber loss of each image on targets that are matched to anchors image by image (`assign_targets`).

    Args:
        positions: Side of each level's feature map, six anchors at each of its positions [-].
    """

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(dtype="float32")
        self.anchors_ = 6 * sum(side * side for side in positions)

    def build(self, *shapes: tuple[int, ...]) -> None:
        self.sides_ = self.add_weight(shape=(self.anchors_, 4), trainable=False, name="anchors")

    def compute_output_spec(self, truth: Tensor, predicted: Tensor) -> Tensor:
        return keras.KerasTensor((truth.shape[0],), dtype="float32")

    def call(self, truth: Tensor, predicted: Tensor) -> Tensor:
        anchors = ops.convert_to_tensor(self.sides_)
        with keras.name_scope(COMPOSED):
            found = [
                assign_targets(image[:, :4], image[:, 4:], ops.max(image[:, 4:], axis=1), anchors)
                for image in ops.unstack(truth, truth.shape[0], axis=0)
            ]
        scores, score_weights, codes, box_weights = (ops.stack(parts) for parts in zip(*found, strict=True))
        box_weights = ops.squeeze(box_weights, -1)
        absolute = ops.abs(codes - predicted[..., :4])
        distance = ops.where(absolute < 1.0, 0.5 * ops.square(absolute), absolute - 0.5)
        logits = predicted[..., 4:]
        entropy = ops.relu(logits) - logits * scores + ops.log1p(ops.exp(-ops.abs(logits)))
        probability = ops.sigmoid(logits)
        hit = scores * probability + (1.0 - scores) * (1.0 - probability)
        balance = scores * 0.25 + (1.0 - scores) * 0.75
        weighted = ops.square(1.0 - hit) * balance * entropy * score_weights
        total = ops.sum(ops.sum(distance, axis=-1) * box_weights, axis=-1) + ops.sum(weighted, axis=(1, 2))
        return total / ops.maximum(ops.sum(box_weights), 1.0)


def _sum_of_losses(_: Tensor, losses: Tensor) -> Tensor:
    return ops.sum(losses)


def _join(boxes: Sequence[Tensor], scores: Sequence[Tensor], classes: int) -> Tensor:
    """Return predictions of all anchors, (anchors, 4 + classes), boxes first."""
    all_boxes = layers.Concatenate(axis=1)([layers.Reshape((-1, 4))(b) for b in boxes])
    all_scores = layers.Concatenate(axis=1)([layers.Reshape((-1, classes))(s) for s in scores])
    return layers.Concatenate()([all_boxes, all_scores])


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
    model = keras.Model(inputs, _join(boxes, scores, classes), name=name)
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
    scores = [layers.Conv2D(n * classes, 3, padding="same")(f) for n, f in zip(anchors, features, strict=True)]
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
    """SSD on ResNet-50 with a feature pyramid and shared towers of four layers, as NVIDIA trains it.

    Its output is the loss of each image: boxes are an input, and are matched to anchors within the step.
    """
    inputs = image(image_size)
    truth = layers.Input((BOXES, 4 + classes), name="boxes")
    levels = _pyramid(_pyramid_backbone(inputs), 256)
    make = lambda: layers.Conv2D(256, 3, padding="same", use_bias=False)  # noqa: E731
    box, score = layers.Conv2D(6 * 4, 3, padding="same"), layers.Conv2D(6 * classes, 3, padding="same")
    boxes = [box(x) for x in _shared_tower(levels, 4, make, "relu6")]
    scores = [score(x) for x in _shared_tower(levels, 4, make, "relu6")]
    losses = MatchedFocalLoss([x.shape[1] for x in levels])(truth, _join(boxes, scores, classes))
    model = keras.Model([inputs, truth], losses, name="ssd320_fpn")
    model.compile(optimizer=make_optimizer(optimizer), loss=_sum_of_losses)
    return model


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

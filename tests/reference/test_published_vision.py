"""The networks behind the published vision measurements have the published numbers of parameters."""

from __future__ import annotations

import importlib
import math
import os
import sys
from pathlib import Path

import pytest
from gpuplan.workload.capture.materialize import abstract_variables

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

PUBLISHED = Path(__file__).parents[2] / "profiles" / "published"

# pytorch.org/vision/stable/models.html, "Table of all available classification weights", num_params of each.
TORCHVISION = {
    ("resnet", "resnet18", ()): 11_689_512,
    ("resnet", "resnet34", ()): 21_797_672,
    ("resnet", "resnet50_v15", ()): 25_557_032,
    ("resnet", "resnet50_v15", (("fused", True),)): 25_557_032,
    ("resnet", "resnet101_v15", ()): 44_549_160,
    ("resnet", "resnext50_32x4d", ()): 25_028_904,
    ("resnet", "resnext101_32x8d", ()): 88_791_336,
    ("resnet", "wide_resnet50_2", ()): 68_883_240,
    ("resnet", "wide_resnet101_2", ()): 126_886_696,
    ("classic", "squeezenet1_0", ()): 1_248_424,
    ("classic", "squeezenet1_1", ()): 1_235_496,
    ("classic", "vgg11", ()): 132_863_336,
    ("classic", "vgg13", ()): 133_047_848,
    ("classic", "vgg16", ()): 138_357_544,
    ("classic", "vgg19", ()): 143_667_240,
    ("classic", "vgg11", (("batch_norm", True),)): 132_868_840,
    ("classic", "vgg13", (("batch_norm", True),)): 133_053_736,
    ("classic", "vgg16", (("batch_norm", True),)): 138_365_992,
    ("classic", "vgg19", (("batch_norm", True),)): 143_678_248,
    ("mobile", "mnasnet", (("alpha", 0.5),)): 2_218_512,
    ("mobile", "mnasnet", (("alpha", 0.75),)): 3_170_208,
    ("mobile", "mnasnet", (("alpha", 1.0),)): 4_383_312,
    ("mobile", "mnasnet", (("alpha", 1.3),)): 6_282_256,
    ("mobile", "shufflenet_v2", (("width", 0.5),)): 1_366_792,
    ("mobile", "shufflenet_v2", (("width", 1.0),)): 2_278_604,
    ("mobile", "shufflenet_v2", (("width", 1.5),)): 3_503_624,
    ("mobile", "shufflenet_v2", (("width", 2.0),)): 7_393_996,
    ("mobile", "mobilenet_v3_large", ()): 5_483_032,
    ("mobile", "mobilenet_v3_small", ()): 2_542_856,
    ("efficientnet", "efficientnet", (("variant", "b0"),)): 5_288_548,
    ("efficientnet", "efficientnet", (("variant", "b7"),)): 66_347_960,
    ("efficientnet", "efficientnet_v2", (("variant", "s"),)): 21_458_488,
    ("efficientnet", "efficientnet_v2", (("variant", "m"),)): 54_139_356,
    ("efficientnet", "efficientnet_v2", (("variant", "l"),)): 118_515_272,
    ("transformer", "vit", (("variant", "base"), ("patch", 16))): 86_567_656,
    ("transformer", "vit", (("variant", "base"), ("patch", 32))): 88_224_232,
    ("transformer", "vit", (("variant", "large"), ("patch", 16))): 304_326_632,
    ("transformer", "convnext", (("variant", "tiny"),)): 28_589_128,
    ("transformer", "convnext", (("variant", "small"),)): 50_223_688,
    ("transformer", "convnext", (("variant", "base"),)): 88_591_464,
    ("transformer", "convnext", (("variant", "large"),)): 197_767_336,
    ("swin", "swin", (("variant", "tiny"),)): 28_288_354,
    ("swin", "swin", (("variant", "small"),)): 49_606_258,
    ("swin", "swin", (("variant", "base"),)): 87_768_224,
}

# huggingface/pytorch-image-models, results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv, param_count [M].
TIMM_MILLIONS = {
    ("resnet", "resnext101_32x4d", ()): 44.18,
    ("resnet", "se_resnext50_32x4d", ()): 27.56,
    ("efficientnet", "efficientnet", (("variant", "b1"),)): 7.79,
    ("efficientnet", "efficientnet", (("variant", "b2"),)): 9.11,
    ("efficientnet", "efficientnet", (("variant", "b3"),)): 12.23,
    ("efficientnet", "efficientnet", (("variant", "b5"),)): 30.39,
    ("efficientnet", "efficientnet", (("variant", "b6"),)): 43.04,
    ("efficientnet", "efficientnet_v2", (("variant", "b0"),)): 7.14,
    ("efficientnet", "efficientnet_v2", (("variant", "b1"),)): 8.14,
    ("efficientnet", "efficientnet_v2", (("variant", "b2"),)): 10.10,
    ("efficientnet", "efficientnet_v2", (("variant", "b3"),)): 14.36,
    ("efficientnet", "regnety", (("variant", "004"),)): 4.34,
    ("efficientnet", "regnety", (("variant", "008"),)): 6.26,
    ("efficientnet", "regnety", (("variant", "016"),)): 11.20,
    ("efficientnet", "regnety", (("variant", "032"),)): 19.44,
    ("efficientnet", "regnety", (("variant", "040"),)): 20.65,
    ("efficientnet", "regnety", (("variant", "080"),)): 39.18,
    ("inception", "inception_v4", (("classes", 1000),)): 42.68,
    ("inception", "nasnet_large", ()): 88.75,
    ("transformer", "mixer_b16", ()): 59.88,
    ("transformer", "vit", (("variant", "tiny"),)): 5.72,
    ("transformer", "vit", (("variant", "small"),)): 22.05,
    ("transformer", "vit", (("variant", "small"), ("image_size", 384))): 22.20,
    ("transformer", "vit", (("variant", "small"), ("patch", 32))): 22.88,
    ("efficientnet", "efficientnet", (("variant", "b7"),)): 66.35,
    ("transformer", "vit", (("variant", "large"), ("image_size", 384))): 304.72,
}

# One paper, model card or README each, to the digits that it prints.
OTHERS = {
    # Shi et al., 2016, and Caffe's bvlc_alexnet: "61 M"; the exact count follows from its prototxt.
    ("classic", "alexnet_bvlc", ()): (60.97, 0.01),
    # Szegedy et al., 2014, and Caffe's bvlc_googlenet without its auxiliary heads: 7.0 M.
    ("inception", "inception_v1", ()): (7.00, 0.01),
    # keras.io/examples, cifar10_resnet: ResNet-56 v1, 0.86 M (0.85 M without biases, He et al., 2015).
    ("resnet", "resnet56_cifar_keras", ()): (0.86, 0.01),
    # kuangliu/pytorch-cifar: ResNet18, 11.17 M.
    ("resnet", "resnet18_cifar", ()): (11.17, 0.01),
    # keras.io/api/applications: ResNet50, 25.6 M, and InceptionResNetV2, 55.9 M.
    ("resnet", "resnet50_keras", ()): (25.6, 0.05),
    ("inception", "inception_resnet_v2", ()): (55.9, 0.1),
    # pytorch.org/hub, nvidia_deeplearningexamples: SE-ResNeXt101-32x4d, 48.96 M in timm's seresnext101_32x4d.
    ("resnet", "se_resnext101_32x4d", ()): (48.96, 0.01),
    # facebookarchive/fb.resnet.torch, pretrained: ResNet-200, 64.7 M.
    ("resnet", "resnet200_v2", ()): (64.7, 0.05),
    # He et al., 2016, the same convolutions as v1, fewer normalizations.
    ("resnet", "resnet50_mxnet", ()): (25.5, 0.06),
    # keras-team/keras, cifar10_cnn example, printed by model.summary().
    ("classic", "cifar10_cnn_keras", ()): (1.250858, 1e-6),
    # Zhai et al., 2021, table 2: ViT-G/14, 1843 M.
    ("transformer", "vit", (("variant", "giant"), ("patch", 14))): (1843, 5),
    # Tan et al., 2019, table 2: EfficientDet-D0, 3.9 M.
    ("detection", "efficientdet_d0", ()): (3.9, 0.05),
    # Isensee et al., 2021, and MONAI's DynUNet with these filters: 31.2 M.
    ("unet", "nnunet_3d", ()): (31.2, 0.05),
    # The sum over the blocks of NVIDIA/DeepLearningExamples, UNet_Industrial/model: 304,928 to the bottom,
    # 1,016,448 there, 505,792 upwards and 23,137 at the end; a comment in unet.py says 1,824,945.
    ("unet", "unet_industrial", ()): (1.850305, 1e-6),
}


def _parameters_millions(family: str, function: str, arguments: tuple[tuple[str, object], ...]) -> float:
    """Return the trainable parameters of a model, built as the MODEL grammar builds it, without weights."""
    if str(PUBLISHED) not in sys.path:
        sys.path.insert(0, str(PUBLISHED))
    with abstract_variables():
        model = getattr(importlib.import_module(f"vision_{family}"), function)(**dict(arguments))
    return sum(math.prod(v.shape) for v in model.trainable_variables) / 1e6


@pytest.mark.parametrize("key", TORCHVISION, ids=str)
def test_parameters_are_torchvisions(key: tuple[str, str, tuple[tuple[str, object], ...]]) -> None:
    """torchvision's table of weights gives the number to the last parameter."""
    assert _parameters_millions(*key) * 1e6 == pytest.approx(TORCHVISION[key], abs=0.5)


@pytest.mark.parametrize("key", TIMM_MILLIONS, ids=str)
def test_parameters_are_timms(key: tuple[str, str, tuple[tuple[str, object], ...]]) -> None:
    """timm's benchmark file, from which the measurements come, prints millions to two decimals."""
    assert _parameters_millions(*key) == pytest.approx(TIMM_MILLIONS[key], abs=0.0051)


@pytest.mark.parametrize("key", OTHERS, ids=str)
def test_parameters_are_the_papers(key: tuple[str, str, tuple[tuple[str, object], ...]]) -> None:
    """A paper, a model card or an example prints the count, to fewer digits."""
    published, tolerance = OTHERS[key]

    assert _parameters_millions(*key) == pytest.approx(published, abs=tolerance)


def test_alexnets_of_the_benchmarks_follow_from_their_layers() -> None:
    """No count is published for the variants of benchmark scripts: kernels and biases by hand."""
    shared = 4096 * 4096 + 4096
    tf = 11 * 11 * 3 * 64 + 64 + 25 * 64 * 192 + 192 + 9 * 192 * 384 + 384 + 9 * 384 * 384 + 384
    tf += 9 * 384 * 256 + 256 + 9216 * 4096 + 4096 + shared + 4096 * 1001 + 1001
    mxnet = 11 * 11 * 3 * 96 + 96 + 25 * 96 * 256 + 256 + 9 * 256 * 384 + 384 + 9 * 384 * 384 + 384
    mxnet += 9 * 384 * 256 + 256 + 6400 * 4096 + 4096 + shared + 4096 * 1000 + 1000

    assert _parameters_millions("classic", "alexnet_tf_benchmarks", ()) * 1e6 == pytest.approx(tf, abs=0.5)
    assert _parameters_millions("classic", "alexnet_mxnet", ()) * 1e6 == pytest.approx(mxnet, abs=0.5)


def test_ssd300_sees_the_papers_boxes() -> None:
    """Liu et al., 2015: 38^2 x 4 + 19^2 x 6 + 10^2 x 6 + 5^2 x 6 + 3^2 x 4 + 4 = 8732 boxes."""
    if str(PUBLISHED) not in sys.path:
        sys.path.insert(0, str(PUBLISHED))
    with abstract_variables():
        model = importlib.import_module("vision_detection").ssd300()

    assert model.output_shape == (None, 8732, 4 + 81)


def test_v1_and_v15_differ_by_where_they_stride() -> None:
    """The same parameters; v1.5 works on more positions (MLPerf: 4.1 against 3.9 billion multiply-adds)."""
    v1 = _parameters_millions("resnet", "resnet50_v1", (("classes", 1000),))
    v15 = _parameters_millions("resnet", "resnet50_v15", ())

    assert v1 == v15

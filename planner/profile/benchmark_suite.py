"""Workloads of `gpuplan benchmark`: what each builds, at which sizes, and in which precision on which device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from ..errors import UsageError, near_names_hint
from ..frozen import Frozen

MODELS = "gpuplan.profile.benchmark_models"
MIXED = {"gpu": "mixed_float16", "tpu": "mixed_bfloat16", "cpu": "float32"}


# Arguments of a model's function, as after `?` in a MODEL reference, and the batch size [-].
Size = tuple[str, int]


class BenchmarkWorkload(Frozen):
    """A workload of the benchmark.

    Args:
        name: Its name in `--only`.
        function: Function of `benchmark_models`.
        device: Size on GPUs and TPUs.
        cpu: Size on CPUs, on which the same would take minutes.
        mixed: Whether it computes in 16 bits, where the device is made for that.
        mode: Training, or a forward pass alone.
        images: Whether its inputs are images, in Keras's layout.
        attends: Whether it holds attention.
        optimizer: What updates its weights.
    """

    name: str
    function: str
    device: Size
    cpu: Size
    mixed: bool = False
    mode: Literal["train", "infer"] = "train"
    images: bool = False
    attends: bool = False
    optimizer: str = "adam"


class Configured(Frozen):
    """A workload as it is measured on a device.

    Args:
        workload: The workload.
        model: MODEL reference.
        batch_size: Samples of a step [-].
        precision: One of `PRECISIONS`.
    """

    workload: BenchmarkWorkload
    model: str
    batch_size: int
    precision: str


def _image_network(name: str, function: str, batch_size: int, *, cpu: int, mixed: bool) -> BenchmarkWorkload:
    """Return the training of a network of `keras.applications`, at 32 pixels and batch size `cpu` on CPUs."""
    return BenchmarkWorkload(
        name=name,
        function=function,
        device=("image_size=224&classes=1000", batch_size),
        cpu=("image_size=32&classes=10", cpu),
        mixed=mixed,
        images=True,
        optimizer="sgd",
    )


def _encoder(name: str, length: int, batch_size: int, *, cpu: int) -> BenchmarkWorkload:
    """Return the training of BERT's encoder; on CPUs of two blocks, a sixth as wide."""
    return BenchmarkWorkload(
        name=name,
        function="bert_encoder",
        device=(f"depth=12&width=768&heads=12&length={length}", batch_size),
        cpu=(f"depth=2&width=128&heads=4&length={length}&vocabulary=2000", cpu),
        mixed=True,
        attends=True,
    )


# In order of what tells most, so that what the time does not suffice for is at the end. Sizes fit into 15 GiB.
_RESNET = _image_network("resnet50-mixed", "resnet50", 64, cpu=8, mixed=True)
_BERT = _encoder("bert-128", 128, 32, cpu=8)
SUITE = (
    BenchmarkWorkload(
        name="mlp", function="mlp",
        device=("features=784&width=2048&depth=4", 512),
        cpu=("features=784&width=256&depth=2", 128),
    ),
    _BERT,
    BenchmarkWorkload(
        name="lstm-text", function="lstm_text",
        device=("length=200&units=128", 128),
        cpu=("length=50&units=32", 32),
    ),
    _RESNET,
    BenchmarkWorkload(
        name="gpt-512", function="gpt_decoder",
        device=("depth=12&width=768&heads=12&length=512", 4),
        cpu=("depth=2&width=128&heads=4&length=64&vocabulary=2000", 4),
        mixed=True, attends=True,
    ),
    _image_network("resnet50-float32", "resnet50", 32, cpu=4, mixed=False),
    _image_network("mobilenet-v2", "mobilenet_v2", 64, cpu=8, mixed=False),
    BenchmarkWorkload(
        name="unet", function="unet",
        device=("image_size=128&filters=64", 32),
        cpu=("image_size=32&filters=8", 4),
        mixed=True, images=True,
    ),
    replace(_RESNET, name="resnet50-infer", mode="infer"),
    _encoder("bert-512", 512, 8, cpu=2),
    _image_network("resnet50-mixed-small", "resnet50", 16, cpu=2, mixed=True),
    BenchmarkWorkload(
        name="vgg16-small-images", function="vgg16",
        device=("image_size=64&classes=200", 128),
        cpu=("image_size=32&classes=10", 4),
        images=True, optimizer="sgd",
    ),
    replace(_BERT, name="bert-128-infer", mode="infer"),
    _image_network("efficientnet-b0", "efficientnet_b0", 32, cpu=8, mixed=True),
    _image_network("resnet50-float32-small", "resnet50", 8, cpu=2, mixed=False),
)  # fmt: skip


def select_workloads(names: Sequence[str]) -> tuple[BenchmarkWorkload, ...]:
    """Return the named workloads in the order of the suite; all if none is named.

    Raises:
        UsageError: There is no such workload.

    Example:
        >>> [one.name for one in select_workloads(["unet", "mlp"])]
        ['mlp', 'unet']
    """
    known = [one.name for one in SUITE]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no workload `{name}` in the benchmark",
                hint=near_names_hint(name, known, see_all="gpuplan benchmark --help"),
            )
    return tuple(one for one in SUITE if not names or one.name in names)


def configure_suite(
    workloads: Iterable[BenchmarkWorkload], platform: str, *, has_tf32: bool
) -> list[Configured]:
    """Return the workloads as a device runs them, each configuration once.

    float32 is asked for as TF32 where the device has it, which is what frameworks do with most of it there. A TPU
    multiplies in bfloat16 alone, and CPUs compute in float32.

    Args:
        workloads: Workloads to measure.
        platform: Kind of device.
        has_tf32: Whether its tensor units multiply float32.
    """
    found: dict[tuple[str, int, str, str], Configured] = {}
    single = MIXED["tpu"] if platform == "tpu" else "tf32" if has_tf32 else "float32"
    for one in workloads:
        arguments, batch_size = one.cpu if platform == "cpu" else one.device
        precision = MIXED[platform] if one.mixed else single
        model = f"{MODELS}:{one.function}?{arguments}"
        configured = Configured(workload=one, model=model, batch_size=batch_size, precision=precision)
        found.setdefault((model, batch_size, precision, one.mode), configured)
    return list(found.values())

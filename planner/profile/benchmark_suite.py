"""Workloads of `gpuplan benchmark`: what each builds, at which sizes, and in which precision on which device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ..errors import UsageError, near_names_hint
from ..frozen import Frozen

MODELS = "gpuplan.profile.benchmark_models"
MIXED = {"gpu": "mixed_float16", "tpu": "mixed_bfloat16", "cpu": "float32"}


# Arguments of a model's function, as after `?` in a MODEL reference, and the batch size [-].
Size = tuple[str, int]


class BenchmarkWorkload(NamedTuple):
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


_IMAGES, _SMALL_IMAGES = "image_size=224&classes=1000", "image_size=32&classes=10"
_BLOCKS, _SMALL_BLOCKS = "depth=12&width=768&heads=12", "depth=2&width=128&heads=4"
_RESNET = BenchmarkWorkload(
    "resnet50-mixed", "resnet50", (_IMAGES, 64), (_SMALL_IMAGES, 8), mixed=True, images=True, optimizer="sgd"
)
_RESNET_FLOAT32 = _RESNET._replace(
    name="resnet50-float32", device=(_IMAGES, 32), cpu=(_SMALL_IMAGES, 4), mixed=False
)
_BERT = BenchmarkWorkload(
    "bert-128", "bert_encoder", (f"{_BLOCKS}&length=128", 32), (f"{_SMALL_BLOCKS}&length=128&vocabulary=2000", 8),
    mixed=True, attends=True,
)  # fmt: skip
# In order of what tells most, so that what the time does not suffice for is at the end. Sizes fit into 15 GiB.
SUITE = (
    BenchmarkWorkload(
        "mlp", "mlp", ("features=784&width=2048&depth=4", 512), ("features=784&width=256&depth=2", 128)
    ),
    _BERT,
    BenchmarkWorkload("lstm-text", "lstm_text", ("length=200&units=128", 128), ("length=50&units=32", 32)),
    _RESNET,
    BenchmarkWorkload(
        "gpt-512", "gpt_decoder", (f"{_BLOCKS}&length=512", 4), (f"{_SMALL_BLOCKS}&length=64&vocabulary=2000", 4),
        mixed=True, attends=True,
    ),
    _RESNET_FLOAT32,
    _RESNET._replace(name="mobilenet-v2", function="mobilenet_v2", mixed=False),
    BenchmarkWorkload(
        "unet", "unet", ("image_size=128&filters=64", 32), ("image_size=32&filters=8", 4), mixed=True, images=True
    ),
    _RESNET._replace(name="resnet50-infer", mode="infer"),
    _BERT._replace(
        name="bert-512",
        device=(f"{_BLOCKS}&length=512", 8), cpu=(f"{_SMALL_BLOCKS}&length=512&vocabulary=2000", 2),
    ),
    _RESNET._replace(name="resnet50-mixed-small", device=(_IMAGES, 16), cpu=(_SMALL_IMAGES, 2)),
    BenchmarkWorkload(
        "vgg16-small-images", "vgg16", ("image_size=64&classes=200", 128), (_SMALL_IMAGES, 4),
        images=True, optimizer="sgd",
    ),
    _BERT._replace(name="bert-128-infer", mode="infer"),
    _RESNET._replace(name="efficientnet-b0", function="efficientnet_b0", device=(_IMAGES, 32)),
    _RESNET_FLOAT32._replace(name="resnet50-float32-small", device=(_IMAGES, 8), cpu=(_SMALL_IMAGES, 2)),
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

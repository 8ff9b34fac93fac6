"""Steps of a campaign: Keras networks on JAX and PyTorch, the most telling first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PRECISIONS = ("mixed_bfloat16", "tf32", "float32")
TF32_SINCE = 8.0  # compute capability of Ampere, the first with TF32
STEPS_PER_EXECUTION = 10
OWN, EXAMPLES = "benchmarks/workloads.py:", "examples/models.py:"
SUITE = "gpuplan.profile.benchmark_models:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Work of one timing process; equal ones are one row.

    Args:
        model: MODEL reference, files relative to the top of the checkout.
        batch_size: Samples of a step [-].
        mode: `train` or `infer`.
        precision: One of gpuplan's.
        backend: `jax` or `torch`.
        jit_compile: Argument of `compile()`; None for Keras's default: XLA on JAX, kernel by kernel on PyTorch.
        steps_per_execution: The same [-].
    """

    model: str
    batch_size: int
    mode: str
    precision: str
    backend: str
    jit_compile: bool | None = None
    steps_per_execution: int = 1

    @property
    def name(self) -> str:
        """Readable identity."""
        more = "" if self.jit_compile is None else f" jit_compile={self.jit_compile}"
        more += f" steps_per_execution={self.steps_per_execution}" if self.steps_per_execution > 1 else ""
        return f"{self.mode} {self.precision} {self.batch_size} {self.model}{more}"

    @property
    def is_compiled(self) -> bool:
        """Whether the step is one compiled program."""
        return self.backend == "jax" if self.jit_compile is None else self.jit_compile

    @property
    def sweep(self) -> tuple[Any, ...]:
        """Properties that all batch sizes share."""
        return (self.model, self.mode, self.precision, self.backend, self.jit_compile, self.steps_per_execution)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Step:
        """Return the step of a row of a profile; rows before campaigns had Keras's defaults."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})


# Networks with three batch sizes, the middle one first; those that XLA compiles quickly before the others.
NETWORKS: tuple[tuple[str, tuple[int, int, int]], ...] = (
    (f"{OWN}mlp", (64, 1024, 8192)),
    (f"{OWN}tabular", (256, 4096, 32_768)),
    (f"{EXAMPLES}vgg13?image_size=128&classes=100", (16, 64, 256)),
    (f"{EXAMPLES}lstm_text", (32, 256, 1024)),
    (f"{EXAMPLES}transformer?depth=6&width=512&heads=8&length=512", (4, 16, 64)),
    (f"{OWN}lstm_language", (20, 80, 320)),
    (f"{OWN}cifar_cnn", (32, 256, 1024)),
    (f"{OWN}generator", (32, 128, 512)),
    (f"{OWN}unet", (2, 8, 32)),
    (f"{OWN}vision_transformer", (16, 64, 256)),
    (f"{OWN}encoder", (8, 32, 128)),
    (f"{OWN}decoder", (1, 4, 16)),
    (f"{OWN}super_resolution", (4, 16, 64)),
    (f"{OWN}wide_resnet", (32, 128, 512)),
    (f"{OWN}mlp_mixer", (16, 64, 256)),
    (f"{OWN}gru_series", (32, 128, 512)),
    (f"{OWN}lstm_tagger", (32, 128, 512)),
    (f"{OWN}audio_tcn", (8, 32, 128)),
    (f"{OWN}unet_3d", (1, 4, 8)),
    (f"{OWN}translation", (16, 64, 256)),
    (f"{SUITE}bert_encoder?depth=4&width=256&heads=4&length=128", (32, 128, 512)),
    (f"{SUITE}gpt_decoder?depth=12&width=768&heads=12&length=512", (2, 8, 32)),
    (f"{SUITE}lstm_text?length=200&units=128", (32, 128, 1024)),
    (f"{SUITE}unet?image_size=128&filters=64", (8, 32, 128)),
    (f"{SUITE}mlp?width=256&depth=8", (32, 256, 4096)),
    ("VGG16", (16, 64, 256)),
    ("MobileNet", (16, 64, 256)),
    ("ResNet50", (16, 64, 256)),
    ("MobileNetV2", (16, 64, 256)),
    (f"{OWN}encoder?depth=24&width=1024&heads=16&length=384", (2, 8, 32)),
    (f"{EXAMPLES}transformer", (1, 4, 16)),
    ("EfficientNetB0", (16, 64, 256)),
    ("ConvNeXtTiny", (16, 64, 128)),
    ("DenseNet121", (16, 64, 128)),
    ("InceptionV3", (16, 64, 256)),
    ("Xception", (16, 64, 128)),
    ("MobileNetV3Large", (16, 64, 256)),
    ("EfficientNetV2B0", (16, 64, 256)),
    ("ResNet101V2", (8, 32, 128)),
    ("NASNetMobile", (16, 64, 256)),
)
VARIED = 25  # networks at the start of the list that also run without `jit_compile` and several steps at once
TINY: tuple[tuple[str, tuple[int, int, int]], ...] = (
    (f"{OWN}mlp?width=16&depth=1", (4, 8, 16)),
    (f"{OWN}cifar_cnn?width=4", (2, 4, 8)),
    (f"{OWN}encoder?depth=1&width=16&heads=2&length=8&vocabulary=100", (2, 4, 8)),
    (f"{OWN}lstm_tagger?length=4&vocabulary=50&units=4", (2, 4, 8)),
)


def select_precisions(wanted: Sequence[str], *, platform: str, compute_capability: str | None) -> tuple[str, ...]:
    """Return the precisions that mean something on a device: TF32 is NVIDIA's, from Ampere on.

    Example:
        >>> select_precisions(PRECISIONS, platform="gpu", compute_capability="7.5")
        ('mixed_bfloat16', 'float32')
        >>> select_precisions(PRECISIONS, platform="cpu", compute_capability=None)
        ('float32',)
    """
    if platform == "cpu":
        return ("float32",)
    has_tf32 = float(compute_capability or 0.0) >= TF32_SINCE
    return tuple(precision for precision in wanted if precision != "tf32" or has_tf32)


def list_steps(backend: str, precisions: Sequence[str], *, quick: bool = False) -> list[Step]:
    """Return the steps of a backend: middle batch sizes, then without and with `jit_compile` and several steps at
    once, then the other batch sizes, inference, and the last precision.

    Args:
        backend: `jax` or `torch`.
        precisions: In order of importance.
        quick: Whether a few tiny networks are enough, to try them out.
    """
    networks, varied = (TINY, 1) if quick else (NETWORKS, VARIED)
    waves = [
        *_iter_wave(backend, precisions[:2], networks, place=1),
        *_iter_wave(backend, precisions[:1], networks[:varied], place=1, jit_compile=backend == "torch"),
        *_iter_several(backend, precisions[:1], networks[:varied]),
    ]
    for place in () if quick else (2, 0):
        waves += _iter_wave(backend, precisions[:2], networks, place=place)
    waves += _iter_wave(backend, precisions[:2], networks[: 2 if quick else None], place=1, mode="infer")
    waves += _iter_wave(backend, precisions[2:], networks, place=1)
    return list(dict.fromkeys(waves))


def _iter_wave(
    backend: str, precisions: Sequence[str], networks: Iterable[tuple[str, tuple[int, int, int]]], *, place: int,
    mode: str = "train", jit_compile: bool | None = None, steps_per_execution: int = 1,
) -> Iterator[Step]:  # fmt: skip
    for precision in precisions:
        for model, sizes in networks:
            yield Step(
                model=model, batch_size=sizes[place], mode=mode, precision=precision, backend=backend,
                jit_compile=jit_compile, steps_per_execution=steps_per_execution,
            )  # fmt: skip


def _iter_several(
    backend: str, precisions: Sequence[str], networks: Iterable[tuple[str, tuple[int, int, int]]]
) -> Iterator[Step]:
    """Yield steps run several at once, which Keras refuses on PyTorch."""
    if backend == "jax":
        yield from _iter_wave(backend, precisions, networks, place=1, steps_per_execution=STEPS_PER_EXECUTION)

"""Configurations to time, most informative first, for short device sessions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PRECISIONS", "QUICK", "WORKLOADS", "Configuration", "Subject", "plan", "runnable_precisions"]

PRECISIONS = ("tf32", "mixed_bfloat16", "float32", "mixed_float16")
TF32_SINCE = (8, 0)  # compute capability of Ampere, the first with TF32
OWN = "benchmarks/workloads.py:"
EXAMPLES = "examples/models.py:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to be timed.

    Args:
        model: MODEL reference, files relative to the top of the checkout.
        batch_sizes: Increasing; the middle one is timed first [-].
        large: Whether XLA needs long for it: such models share a round.
    """

    model: str
    batch_sizes: tuple[int, ...]
    large: bool = False

    @property
    def middle(self) -> int:
        """The batch size that is timed first [-]."""
        return self.batch_sizes[len(self.batch_sizes) // 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Configurations timed by one process; equal ones are one row."""

    model: str
    batch_size: int
    mode: str
    precision: str
    backend: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @property
    def sweep(self) -> tuple[str, str, str, str]:
        """Parameters that are constant over batch sizes."""
        return (self.model, self.mode, self.precision, self.backend)


WORKLOADS = (
    Subject(model=f"{OWN}mlp", batch_sizes=(64, 1024, 8192)),
    Subject(model=f"{OWN}tabular", batch_sizes=(256, 4096, 32768)),
    Subject(model=f"{EXAMPLES}vgg13?image_size=128&classes=100", batch_sizes=(16, 64, 256)),
    Subject(model=f"{EXAMPLES}lstm_text", batch_sizes=(32, 256, 1024)),
    Subject(model=f"{EXAMPLES}transformer?depth=6&width=512&heads=8&length=512", batch_sizes=(4, 16, 64)),
    Subject(model=f"{OWN}lstm_language", batch_sizes=(20, 80, 320)),
    Subject(model=f"{OWN}cifar_cnn", batch_sizes=(32, 256, 1024)),
    Subject(model=f"{OWN}generator", batch_sizes=(32, 128, 512)),
    Subject(model=f"{OWN}unet", batch_sizes=(2, 8, 32)),
    Subject(model=f"{OWN}vision_transformer", batch_sizes=(16, 64, 256)),
    Subject(model=f"{OWN}encoder", batch_sizes=(8, 32, 128)),
    Subject(model=f"{OWN}decoder", batch_sizes=(1, 4, 16)),
    Subject(model=f"{OWN}super_resolution", batch_sizes=(4, 16, 64)),
    Subject(model=f"{OWN}wide_resnet", batch_sizes=(32, 128, 512)),
    Subject(model=f"{OWN}mlp_mixer", batch_sizes=(16, 64, 256)),
    Subject(model=f"{OWN}gru_series", batch_sizes=(32, 128, 512)),
    Subject(model=f"{OWN}lstm_tagger", batch_sizes=(32, 128, 512)),
    Subject(model=f"{OWN}audio_tcn", batch_sizes=(8, 32, 128)),
    Subject(model=f"{OWN}unet_3d", batch_sizes=(1, 4, 8)),
    Subject(model=f"{OWN}translation", batch_sizes=(16, 64, 256)),
    Subject(model="VGG16", batch_sizes=(16, 64, 256)),
    Subject(model="ResNet50", batch_sizes=(16, 64, 256), large=True),
    Subject(model="MobileNetV2", batch_sizes=(16, 64, 256), large=True),
    Subject(
        model=f"{OWN}encoder?depth=24&width=1024&heads=16&length=384", batch_sizes=(2, 8, 32), large=True
    ),
    Subject(model=f"{EXAMPLES}transformer", batch_sizes=(1, 4, 16), large=True),
    Subject(model="EfficientNetB0", batch_sizes=(16, 64, 256), large=True),
    Subject(model="ConvNeXtTiny", batch_sizes=(16, 64, 128), large=True),
    Subject(model="DenseNet121", batch_sizes=(16, 64, 128), large=True),
    Subject(model="InceptionV3", batch_sizes=(16, 64, 256), large=True),
    Subject(model="Xception", batch_sizes=(16, 64, 128), large=True),
)
QUICK = (
    Subject(model=f"{OWN}mlp?width=64&depth=2", batch_sizes=(4, 16)),
    Subject(model=f"{OWN}cifar_cnn?width=8", batch_sizes=(4,)),
    Subject(model=f"{OWN}encoder?depth=1&width=32&heads=2&length=16&vocabulary=100", batch_sizes=(4,)),
    Subject(model=f"{OWN}lstm_tagger?length=8&vocabulary=100&units=8", batch_sizes=(4,)),
    Subject(model=f"{OWN}unet?image_size=32&width=4&depth=2", batch_sizes=(2,)),
)


def runnable_precisions(
    wanted: Sequence[str], *, compute_capability: tuple[int, int] | None
) -> tuple[str, ...]:
    """Return the precisions that mean something on a device: TF32 is NVIDIA's, from Ampere on.

    Example:
        >>> runnable_precisions(("tf32", "float32"), compute_capability=(7, 5))
        ('float32',)
    """
    has_tf32 = compute_capability is not None and compute_capability >= TF32_SINCE
    return tuple(precision for precision in wanted if precision != "tf32" or has_tf32)


def plan(
    subjects: Sequence[Subject],
    *,
    backends: Sequence[str],
    precisions: Sequence[str],
    only: str | None = None,
) -> list[Configuration]:
    """Return the configurations to run without repetition, most informative first.

    First every model at its middle batch size, then at its largest and smallest, then inference. Within each: the
    two first precisions on each backend, then the other precisions; models that compile quickly come first.

    Args:
        subjects: What to time.
        backends: In order of importance.
        precisions: In order of importance.
        only: Regular expression that must be found in the reference.
    """
    chosen = [subject for subject in subjects if only is None or re.search(only, subject.model)]
    chosen.sort(key=lambda subject: subject.large)
    waves = [
        *_wave(chosen, backends, precisions, batch=lambda s: s.middle),
        *_wave(chosen, backends, precisions, batch=lambda s: s.batch_sizes[-1]),
        *_wave(chosen, backends, precisions, batch=lambda s: s.batch_sizes[0]),
        *_wave(chosen, backends, precisions[:2], batch=lambda s: s.middle, mode="infer"),
    ]
    return list(dict.fromkeys(waves))


def _wave(
    subjects: Sequence[Subject],
    backends: Sequence[str],
    precisions: Sequence[str],
    *,
    batch: Callable[[Subject], int],
    mode: str = "train",
) -> Iterator[Configuration]:
    pairs = [(backend, precision) for backend in backends for precision in precisions[:2]]
    pairs += [(backend, precision) for backend in backends for precision in precisions[2:]]
    for backend, precision in pairs:
        for subject in subjects:
            yield Configuration(
                model=subject.model,
                batch_size=batch(subject),
                mode=mode,
                precision=precision,
                backend=backend,
            )

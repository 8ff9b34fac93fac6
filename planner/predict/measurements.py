"""Measurements as rows: reading the CSV schema that published and private measurements share."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ..errors import UsageError
from ..offers.aliases import get_chip_name
from ..offers.catalog import load_catalog
from ..offers.rows import CPU, Accelerator
from ..records import Frozen

COLUMNS = (
    "model", "batch_size", "accelerator", "devices", "mode", "precision", "compiled", "step_ms", "source",
)  # fmt: skip
Attention = Literal["", "flash", "triton", "unfused"]
LEFT_OUT = "left_out"  # lists of rows that could not be rebuilt, with the reason
STACKS = ("keras", "eager", "tuned")
LOOPS = ("update", "add", "clip", "average")
CHOICES = {  # of columns that may be missing or empty
    "shard": ("none", "zero1", "zero2", "fsdp"),
    "clipping": ("step", "pass"),
    "averaging": ("step",),
    "mixing": ("mixup",),
    "exchange": ("step", "pass"),
}
TEXTS = ("framework", "layout", "clipping", "averaging", "mixing", "exchange", "optimizer", "software")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Measurement(Frozen):
    """One measured step."""

    model: str  # MODEL reference, relative to ``base``
    base: Path  # folder that the reference is relative to
    batch_size: int  # per device [-]
    accelerator: str  # catalog name
    devices: int  # GPUs or TPU chips [-]
    mode: Literal["train", "infer"]
    precision: str
    compiled: bool
    stack: str  # `keras`, `eager` or `tuned`
    step_s: float  # measured time of a step [s]
    source: str
    host: str = ""  # instance type that it ran on; empty when unknown
    feed: str = ""  # how the data came in (`numpy`, `synthetic`, ...); empty when unknown
    framework: str = ""  # `tensorflow1`, `pytorch`, `mxnet`, ...; empty when unknown
    layout: str = ""  # `nchw`, `nhwc`; anything else when it does not matter or is unknown
    distribution: str = "none"  # how several devices were kept together (`nccl`, `parameter_server`, ...)
    hosts: int | None = 1  # machines [-]; None when unknown
    work: str = "train"  # `train`, `infer`, or `forward_backward`: a training step without the optimizer
    accumulation: int | None = 1  # passes for each optimizer step; None when unknown [-]
    # when gradients are scaled to a global norm: each `step` of the optimizer, each `pass`; empty: never, or it is
    # not known
    clipping: Literal["", "step", "pass"] = ""
    # when a moving average of all weights is updated: each `step` of the optimizer; empty: never, or it is not
    # known
    averaging: Literal["", "step"] = ""
    # `mixup` where the step mixes its images in pairs on the device; empty: it does not, or it is not known
    mixing: Literal["", "mixup"] = ""
    # what the script does to the variables one at a time, with kernels for each: `update`, `add` (to sums of
    # gradients), `clip`, `average`
    loops: frozenset[str] = frozenset()
    # when several devices sum their gradients: each `step` of the optimizer (or empty), each `pass`
    exchange: Literal["", "step", "pass"] = ""
    recompute: float = 0.0  # share of the forward pass that the backward pass repeats, 0..1 [-]
    # `flash`: as one fused kernel; `triton`: as one that Triton of 2022 compiled; `unfused`; empty when unknown
    attention: Attention = ""
    # whether the loop worked with the device's arrays between steps: each waits for the one before
    waits: bool = False
    optimizer: str = ""  # what updates the weights, as the source calls it; empty when unknown
    software: str = ""  # frameworks and libraries with their versions, as published; empty when unknown
    # release of the framework as a fractional year, if the row states it; None: read from `software`
    year: float | None = None
    exact_precision: bool = True  # whether `float32` excludes TF32; otherwise it is the framework's default
    assumed: tuple[str, ...] = ()  # what about the row was inferred, not published (`precision`, `compiled`)
    shard: str = ""  # what the devices held in parts: `zero1`, `zero2`, `fsdp`; `none` or empty for copies
    collection: str = ""  # file that the row was read from, without its suffix

    @property
    def has_fused_attention(self) -> bool:
        """Whether each pass of attention was one kernel."""
        return self.attention in ("flash", "triton")

    @property
    def architecture(self) -> str:
        """The model without its arguments: what is left out together when models are left out."""
        return self.model.split("?")[0].rsplit(":", 1)[-1].rsplit(".", 1)[-1]

    @property
    def family(self) -> str:
        """The architecture without its variant (`resnet50_v15` is a `resnet50`)."""
        name = APPLICATIONS.get(self.architecture, self.architecture)
        return next((family for family in FAMILIES if name.startswith(family)), name)

    @property
    def series(self) -> str:
        """Series of measurements: the collection without the name of its part."""
        name = self.collection
        for part in PARTS_OF_A_SOURCE:
            name = name.removesuffix(part)
        return name

    @property
    def origin(self) -> str:
        """Publisher, of one series or of several."""
        return PUBLISHERS.get(self.series, self.series)

    @property
    def device(self) -> Accelerator | None:
        """Row of the accelerator in the packaged catalog; None for a CPU."""
        return load_catalog().accelerators.get(self.accelerator)

    @property
    def is_on_gpu(self) -> bool:
        """Whether the accelerator is neither a TPU nor a CPU."""
        return self.accelerator != CPU and not (self.device and self.device.kind == "tpu")

    @property
    def chip(self) -> str:
        """Chip of the accelerator: the group of rows that is left out together."""
        return get_chip_name(self.accelerator)


PARTS_OF_A_SOURCE = ("_vision", "_language", "_infer")  # files that hold one publisher's rows between them
PUBLISHERS = {
    "lambda_tensorflow": "lambda",
    "lambda_pytorch": "lambda",
    "profet_mobilenet": "profet_keras_aws",
    "timm_train_rtx3090": "timm",
}  # collections of one publisher, which are left out together
# Architectures whose variants are near copies of each other: what is left out together when one is left out.
FAMILIES = (
    "alexnet", "bert", "cifar10_cnn", "efficientnet", "inception_v1", "mobilenet_v3", "nnunet", "resnet18",
    "resnet50", "resnext", "se_resnext", "shufflenet", "squeezenet", "unet", "wide_resnet",
)  # fmt: skip
# Names in `keras.applications` of architectures that are built elsewhere, too.
APPLICATIONS = {
    "InceptionV3": "inception_v3", "MobileNetV2": "mobilenet_v2", "ResNet50": "resnet50", "VGG16": "vgg16",
}  # fmt: skip
OWN = "keras3"  # collection of the steps that were timed for this project


def _parse(row: dict[str, str], path: Path) -> Measurement:
    missing = [name for name in COLUMNS if not (row.get(name) or "").strip()]
    if missing:
        raise ValueError(f"`{missing[0]}` is empty")
    step_ms = float(row["step_ms"])
    if not step_ms > 0:
        raise ValueError(f"`step_ms` must be positive, not {row['step_ms']}")
    if row["compiled"].lower() not in _BOOLEANS:
        raise ValueError(f"`compiled` must be true or false, not `{row['compiled']}`")
    if row["mode"] not in ("train", "infer"):
        raise ValueError(f"`mode` must be train or infer, not `{row['mode']}`")
    stack = row.get("stack") or "keras"
    if stack not in STACKS:
        raise ValueError(f"`stack` must be one of {', '.join(STACKS)}, not `{stack}`")
    _require_choices(row)
    return Measurement(
        model=row["model"],
        base=path.parent,
        collection=path.stem,
        batch_size=int(row["batch_size"]),
        accelerator=row["accelerator"],
        devices=int(row["devices"]),
        mode=cast('Literal["train", "infer"]', row["mode"]),
        precision=row["precision"],
        compiled=_BOOLEANS[row["compiled"].lower()],
        stack=stack,
        step_s=step_ms / 1e3,
        source=row["source"],
        host=row.get("instance_type") or "",
        feed=row.get("input") or "",
        **_circumstances(row),
    )


def _require_choices(row: dict[str, str]) -> None:
    """Raise ValueError if an optional column holds a word that it does not know."""
    for name, choices in CHOICES.items():
        if row.get(name) and row[name] not in choices:
            raise ValueError(f"`{name}` must be {', '.join(choices)} or empty, not `{row[name]}`")
    unknown = set((row.get("loops") or "").split()) - set(LOOPS)
    if unknown:
        raise ValueError(f"`loops` must name some of {', '.join(LOOPS)}, not `{min(unknown)}`")


def _circumstances(row: dict[str, str]) -> dict[str, Any]:
    """Return the optional columns, which only published files have."""
    return {
        **{name: row.get(name) or "" for name in TEXTS},
        "distribution": row.get("distribution") or "none",
        "shard": row.get("shard") or ("fsdp" if row.get("distribution") == "fsdp" else ""),
        "hosts": _count(row.get("hosts", "1")),
        "work": row.get("work") or row["mode"],
        "accumulation": _count(row.get("accumulation", "1")),
        "loops": frozenset((row.get("loops") or "").split()),
        "recompute": _parse_share(row.get("activation_checkpointing")),
        "attention": _parse_attention(row.get("attention")),
        "year": float(row["software_year"]) if row.get("software_year") else None,
        "exact_precision": "precision_known" in row,
        "waits": row.get("waits") == "true",
        "assumed": tuple(name for name in ("precision", "compiled") if row.get(f"{name}_known") == "false"),
    }


def _parse_attention(text: str | None) -> Attention:
    """Return `unknown` and `na` of published files, which are older than fused kernels, as `unfused`."""
    if text in ("unknown", "na"):
        return "unfused"
    if text not in (None, *get_args(Attention)):
        raise ValueError(f"`attention` must be flash, triton or unfused, not `{text}`")
    return cast("Attention", text or "")


def _parse_share(text: str | None) -> float:
    """Return `true` as 1, and `false`, `unknown` and nothing as 0; anything else is a number from 0 to 1 [-]."""
    if text in (None, "", "true", "false", "unknown", "na"):
        return 1.0 if text == "true" else 0.0
    try:
        share = float(text or "")
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"`activation_checkpointing` must be true, false or a share from 0 to 1, not `{text}`")
    return share


def _count(text: str | None) -> int | None:
    return int(text) if text else None


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a CSV of measurements.

    Raises:
        UsageError: The file is missing, a column is missing, or a row is broken (names file, line, field).
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(
                    f"`{path}` lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                    hint=f"the header must hold {','.join(COLUMNS)}",
                )
            return tuple(_row(row, reader.line_num, path) for row in reader)
    except OSError as problem:
        raise UsageError(
            f"cannot read measurements from `{path}`: {problem.strerror}",
            hint="`gpuplan accuracy` alone prints the packaged record",
        ) from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise UsageError(
            f"cannot read measurements from `{path}`: {problem}", hint="give a CSV file in UTF-8"
        ) from problem


def _row(row: dict[str, str], line: int, path: Path) -> Measurement:
    try:
        return _parse(row, path)
    except ValueError as problem:
        raise UsageError(f"{path}:{line}: {problem}") from problem


def load_published_measurements() -> tuple[Measurement, ...]:
    """Return every published measurement that ships with the program."""
    folder = Path(str(resources.files("gpuplan.profiles.published")))
    paths = sorted(path for path in folder.glob("*.csv") if not path.name.startswith(LEFT_OUT))
    return tuple(row for path in paths for row in read_measurements(path))


# The middle of the published years, which a framework's fitted rates are of. All published steps on tensor units
# but four, of one network and one publisher, are of later software: they do not tell how libraries changed before.
SOFTWARE_EPOCH = 2019.5
# Libraries of later years are hardly faster: networks without attention gain 1 to 2 % in the median from PyTorch
# 1.13 (2022) to 2.1, to 2.4 and to 2.9 (2025) on an RTX 3090 and an RTX 4090 (profiles/published/timm_infer.csv).
SOFTWARE_PLATEAU = 2022.5
# Volta came out in the middle of 2017. Its scalar units were used better with each release of the libraries until
# the middle of 2020; of published steps on a V100 those by software of 2017 and 2018 are slower by a fifth or more
# than later ones. Older chips show no trend: their libraries were mature by then.
SCALAR_EPOCH, SCALAR_PLATEAU = 2017.5, 2020.5
NEWEST_SOFTWARE = 2025.5  # end of the published years
SOFTWARE = "software.csv"
_CONTAINER = re.compile(r"NGC (\d\d)\.(\d\d)")  # NVIDIA's containers are named for their month


def software_year(software: str) -> float:
    """Return the release date of software as a fractional year [years].

    Args:
        software: As a row names it; what is not known, or later than every published row, is taken for the newest.

    Example:
        >>> software_year("PyTorch NGC 20.07"), software_year("Keras 2.1.5 + TensorFlow 1.7.0, CUDA 9.0")
        (2020.5, 2018.167)
        >>> software_year("")
        2025.5
    """
    container = _CONTAINER.search(software)
    if container:
        return min(_year(2000 + int(container[1]), int(container[2])), NEWEST_SOFTWARE)
    named = [name for name in _releases() if name in software]
    return min(_releases()[max(named, key=len)], NEWEST_SOFTWARE) if named else NEWEST_SOFTWARE


def _year(year: int, month: int) -> float:
    return round(year + (month - 1) / 12, 3)


@cache
def _releases() -> dict[str, float]:
    """Return the packaged release dates, by the text that names a release."""
    text = (resources.files("gpuplan.profiles") / SOFTWARE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["software"]: _year(*map(int, row["released"].split("-"))) for row in rows}

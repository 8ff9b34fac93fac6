"""Known public data sets, and stand-ins for those of TensorFlow Datasets and Hugging Face, for files and texts."""

from __future__ import annotations

import csv
import os
import re
import struct
import sys
import wave
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np

from ..errors import CaptureError
from .patches import around, replace_after_import

Library = Literal["keras", "tfds", "huggingface", "text", "archive"]
USUAL_CONFIGS = ("default", "plain_text", "split")
_FIELD = re.compile(r"([^=]+)=([a-z]+\d*)(?::([\dx*]+))?(?:<(\d+))?")
_PART = re.compile(r"(\w+)(?:\[(-?[\d_]+%?)?:(-?[\d_]+%?)?\])?")


@dataclass(frozen=True, slots=True)
class DataField:
    """A field of a sample."""

    name: str
    dtype: str  # NumPy name of its type; or `string` (of words), `image`, or `sequence` (of word indices)
    # shape, None for a dimension that differs between samples; of a string, its usual number of words; of a
    # sequence, the usual and the longest length
    shape: tuple[int | None, ...]
    bound: int | None  # number of classes, or words of the vocabulary [-]


@dataclass(frozen=True, slots=True)
class PublicData:
    """A public data set: a row of the table."""

    library: str  # what loads it
    names: tuple[str, ...]  # its names there
    # fields of a sample; of a text its characters, with `\n` for a new line; of an archive the ending of its files
    content: str
    # number of samples by split; of a text, its length; of an archive, number of files by folder
    sizes: dict[str, int]
    source: str  # address of the page that states them

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Fields of a sample, first those that `as_supervised` returns."""
        found = []
        for text in self.content.split():
            name, dtype, shape, bound = _FIELD.fullmatch(text).groups()  # type: ignore[union-attr]
            sizes = tuple(None if size == "*" else int(size) for size in (shape or "").split("x") if size)
            found.append(DataField(name, dtype, sizes, None if bound is None else int(bound)))
        return tuple(found)

    def count(self, split: str) -> int | None:
        """Return the number of samples of a split like `train`, `train[:80%]` or `train+test`; None for others."""
        total = 0
        for part in split.replace(" ", "").split("+"):
            found = _PART.fullmatch(part)
            size = None if found is None else {"all": sum(self.sizes.values()), **self.sizes}.get(found[1])
            if found is None or size is None:
                return None
            total += len(range(size)[_cut(found[2], size) : _cut(found[3], size)])
        return total


def _cut(bound: str | None, size: int) -> int | None:
    """Return an end of a slice in samples, percentages rounded."""
    if not bound:
        return None
    return round(size * int(bound[:-1]) / 100) if bound.endswith("%") else int(bound)


@cache
def read_public_data() -> dict[tuple[str, str], PublicData]:
    """Return all rows of the table by library and name."""
    found = {}
    with Path(__file__).with_name("public_data.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sizes = {name: int(size) for name, _, size in (one.rpartition("=") for one in row["splits"].split())}
            names = tuple(row["name"].split())
            data = PublicData(row["library"], names, row["features"], sizes, row["source"])
            found.update({(data.library, name): data for name in names})
    return found


def find_public_data(library: Library, name: str, config: str | None = None) -> PublicData | None:
    """Return the row of a name, which may end in a configuration and a version; None if it is not in the table.

    Example:
        >>> find_public_data("tfds", "glue/sst2:2.0.0").sizes["train"]
        67349
    """
    rows, plain = read_public_data(), name.partition(":")[0]
    if whole := rows.get((library, f"{plain}/{config}" if config else plain)):
        return whole
    if config is None and library == "tfds":
        plain, _, config = plain.partition("/")
    usual = config in (None, *USUAL_CONFIGS, plain.rpartition("/")[2])
    return rows.get((library, plain)) if usual else None


# --- TensorFlow Datasets -------------------------------------------------------------------------------------

Note = Callable[[str, PublicData], None]
Call = Callable[..., Any]
TFDS = "tensorflow_datasets"
INSTALL = f"install `{TFDS}` where gpuplan is installed"
WHOLE = -1  # `batch_size` of `tfds.load` for a single batch
ROWS = 100  # different ones of a stand-in from Hugging Face, at least [-]


def load_or_build(build: Call, where: Callable[[Exception], bool], load: Call, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a loader; after errors `where` so, that of `build` for the loader and its arguments."""
    try:
        return load(*args, **kwargs)
    except Exception as error:
        found = build(load, *args, **kwargs) if where(error) else None
        if found is None:
            raise
        return found


def replace_tfds(note: Note) -> None:
    """Replace `tfds.load`; where only TensorFlow is installed, `tensorflow_datasets` is a module of stand-ins."""
    if find_spec(TFDS) is None:
        if find_spec("tensorflow") is not None:
            sys.modules[TFDS] = _build_absent(note)
    else:
        replace_after_import(TFDS, "load", around(partial(load_or_build, partial(_load, note), bool)))


def _build_absent(note: Note) -> ModuleType:
    """Return a stand-in for the module `tensorflow_datasets`."""

    def as_numpy(tree: Any) -> Any:
        import keras

        return keras.tree.map_structure(lambda one: one.numpy() if hasattr(one, "numpy") else _Numpy(one), tree)

    def load(name: str, **how: Any) -> Any:
        if (found := _load(note, None, name, **how)) is None:
            message = f"`{TFDS}` is not installed, and gpuplan has no stand-in for `{name}`"
            raise CaptureError(message, hint=INSTALL)
        return found

    def builder(name: str, **how: Any) -> SimpleNamespace:
        _, info = load(name, with_info=True)
        return SimpleNamespace(info=info, as_dataset=partial(load, name), download_and_prepare=lambda **_: None)

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("_"):
            raise AttributeError(name)
        raise CaptureError(f"`{TFDS}.{name}` is used, and `{TFDS}` is not installed", hint=INSTALL)

    module = ModuleType(TFDS)
    module.__spec__ = ModuleSpec(TFDS, None)
    splits = {name.upper(): name for name in ("train", "test", "validation", "all")}
    vars(module).update(load=load, as_numpy=as_numpy, Split=SimpleNamespace(**splits), __getattr__=__getattr__)
    vars(module).update(builder=builder, disable_progress_bar=int, enable_progress_bar=int)
    return module


def _load(
    note: Note,
    _: Any,
    name: str,
    *,
    split: Any = None,
    with_info: bool = False,
    batch_size: int | None = None,
    as_supervised: bool = False,
    **how: Any,
) -> Any:
    """Return what `tfds.load` returns; None if the name or the split is unknown."""
    data = find_public_data("tfds", name)
    if data is None:
        return None

    def build(samples: int) -> Any:
        dataset = _build_dataset(data, samples, as_supervised=as_supervised)
        if batch_size == WHOLE:
            return next(iter(dataset.batch(samples)))
        return dataset if batch_size is None else dataset.batch(batch_size)

    note(f"tfds.load({name!r})", data)
    found = _build_splits(data, split, build)
    return (found, _describe(data)) if with_info and found is not None else found


def _describe(data: PublicData) -> SimpleNamespace:
    """Return the `info` of a data set, as scripts use it."""
    features = {}
    for field in data.fields:
        shape = () if field.dtype == "string" else field.shape
        features[field.name] = SimpleNamespace(shape=shape, dtype=field.dtype, np_dtype=field.dtype)
        if field.bound is not None:
            names = list(map(str, range(field.bound)))
            vars(features[field.name]).update(num_classes=field.bound, names=names, int2str=lambda n: str(int(n)))
    keys = tuple(field.name for field in data.fields[:2])
    supervised = keys if keys[1:] else None
    return SimpleNamespace(name=data.names[0], features=features, splits=_Splits(data), supervised_keys=supervised)


def _build_splits(data: PublicData, split: Any, build: Callable[[int], Any]) -> Any:
    """Return the results of `build` for a split or nested ones, by default for all by name; None if unknown."""
    if split is None:
        split = {name: name for name in data.sizes}
    if isinstance(split, (dict, list, tuple)):
        named = split if isinstance(split, dict) else dict(enumerate(split))
        built = {name: _build_splits(data, one, build) for name, one in named.items()}
        if any(one is None for one in built.values()):
            return None
        return built if isinstance(split, dict) else list(built.values())
    samples = data.count(str(getattr(split, "value", split)))
    return None if samples is None else build(samples)


def _build_dataset(data: PublicData, samples: int, *, as_supervised: bool) -> Any:
    """Return a `tf.data.Dataset` that makes its samples when it is read."""
    import tensorflow as tf

    fields = data.fields[:2] if as_supervised else data.fields

    def build_value(field: DataField, number: Any) -> Any:
        if field.dtype == "string":
            words = (number * field.shape[0] + tf.range(field.shape[0], dtype=tf.int64)) % WORDS
            return tf.strings.reduce_join(tf.strings.join(["w", tf.strings.as_string(words)]), separator=" ")
        if field.bound is not None:
            return tf.cast(number % field.bound, field.dtype)
        return tf.zeros([SIDE if size is None else size for size in field.shape], field.dtype)

    def build(number: Any) -> Any:
        values = {field.name: build_value(field, number) for field in fields}
        return tuple(values.values()) if as_supervised else values

    do_not_convert = tf.autograph.experimental.do_not_convert
    return tf.data.Dataset.range(samples).map(do_not_convert(build))


class _Splits(dict[str, Any]):
    def __init__(self, data: PublicData) -> None:
        self._data = data
        super().__init__({name: SimpleNamespace(num_examples=size) for name, size in data.sizes.items()})

    def __missing__(self, split: str) -> Any:
        samples = self._data.count(split)
        if samples is None:
            raise KeyError(split)
        return SimpleNamespace(num_examples=samples)


class _Numpy:
    """A data set whose elements are NumPy arrays."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset.as_numpy_iterator())

    def __len__(self) -> int:
        return len(self._dataset)


# --- Hugging Face -----------------------------------------------------------------------------------------


def replace_hugging_face(note: Note) -> None:
    """Replace `datasets.load_dataset`."""

    def build(_: Any, path: str, name: str | None = None, *args: Any, streaming: bool = False, **how: Any) -> Any:
        data = None if streaming else find_public_data("huggingface", path, name)
        if data is None:
            return None
        module, split = sys.modules["datasets"], how.get("split")
        different = max(ROWS, *(field.bound or 0 for field in data.fields))
        features, columns = {}, {}
        for field in data.fields:
            kind = module.Image() if field.dtype == "image" else module.Value(field.dtype)
            features[field.name] = kind if field.bound is None else module.ClassLabel(num_classes=field.bound)
            values: list[Any] = [row % (field.bound or different) for row in range(different)]
            if field.dtype == "image":
                height, width, channels = (*(size or SIDE for size in field.shape), 1)[:3]
                image = build_image(height, width, channels=channels)
                values = [{"bytes": image, "path": None}] * different
            elif field.dtype == "string":
                values = [build_words(row, field.shape[0] or 1) for row in range(different)]
            columns[field.name] = values
        rows = module.Dataset.from_dict(columns, features=module.Features(features))
        found = _build_splits(data, split, lambda samples: rows.select(np.arange(samples) % different))
        if found is not None:
            note(f"load_dataset({path!r})", data)
        return module.DatasetDict(found) if found is not None and split is None else found

    replace_after_import("datasets", "load_dataset", around(partial(load_or_build, build, bool)))


LINKS_OF_A_FILE = 10_000  # file systems limit them, ext4 to 65,000 [-]
SIDE = 256  # of an image [pixels]
WORDS = 20_000  # different ones in texts [-]
RATE, SECONDS = 16_000, 1  # of audio


def write_folder(folder: Path, numbers: Mapping[str, int], *, ending: str) -> None:
    """Write folders with numbers of equal files of some ending, which take the room of one."""
    content = build_words(0, 100).encode() if ending == ".txt" else build_image()
    if ending == ".wav":
        buffer = BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(b"\0\0" * RATE * SECONDS)
        content = buffer.getvalue()
    files = (folder / name / f"{n:07d}{ending}" for name, number in numbers.items() for n in range(number))
    for name in numbers:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for made, path in enumerate(files):
        if made % LINKS_OF_A_FILE == 0:
            first = path
            path.write_bytes(content)
        else:
            os.link(first, path)


def build_image(height: int = SIDE, width: int = SIDE, *, channels: int = 3) -> bytes:
    """Return a black image as PNG, which readers know whatever its ending (w3.org/TR/png, section 5)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)  # 8 bits a channel
    rows = zlib.compress((b"\0" + b"\0" * channels * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def build_words(number: int, words: int) -> str:
    """Return a text of some words, all different in consecutive texts up to a limit."""
    return " ".join(f"w{(number * words + word) % WORDS}" for word in range(words))

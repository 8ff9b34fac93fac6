"""Stand-ins for data that a script cannot reach, of the right shapes, types and number of samples."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..errors import CaptureError, find_user_line
from ..options import DataTerms
from ..script_text import SWITCH, is_from_loader
from .feeding import data_is_replaced
from .patches import around, replace_after_import
from .stand_in_datasets import (
    DataField,
    PublicData,
    find_public_data,
    load_or_build,
    read_public_data,
    replace_hugging_face,
    replace_tfds,
    write_folder,
)

# Packages by which Keras offers its functions; the last is that of `tf.keras`.
KERAS_PACKAGES = ("keras.src", "keras", "keras._tf_keras.keras")
SMALL_SAMPLES = 600  # of `california_housing` [-]
BRIGHTEST = 255
COARSE_CLASSES = 20  # of `cifar100` [-]
HELD_OUT_NAMES = ("val", "test", "dev", "eval")
HELD_OUT_SHARE = 0.2
PLACEHOLDERS = "; its words are placeholders, so a vocabulary learned from them has another size"


class StandInData:
    """Replacements of the functions that load data: what they cannot reach is stood in for, and noted."""

    def __init__(self, terms: DataTerms, *, folder: Path, own: Path) -> None:
        self.terms, self.folder, self.own = terms, folder, own
        self.notes: dict[str, None] = {}  # on the data replaced by stand-ins
        self.is_as_stated = False  # whether a size that the user stated was used

    def install(self) -> StandInData:
        """Replace the functions from now on."""
        if not self.terms.downloads:
            replace_after_import("socket", "getaddrinfo", around(_look_up_here))
            os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        for (library, name), data in read_public_data().items():
            if library == "keras":
                module, words = f"datasets.{name}", range(1, (data.fields[0].bound or 0) + 1)
                _stand_in_for(module, "load_data", partial(self._build_keras_data, name, data))
                index = partial(lambda words, _: {f"w{n}": n for n in words}, words)
                _stand_in_for(module, "get_word_index", index)
        for module in ("utils.file_utils", "utils"):
            _stand_in_for(module, "get_file", lambda given: self._write_file(**given))
        utils, image = "keras.src.utils.dataset_utils", "keras.src.legacy.preprocessing.image"
        replace_after_import(utils, "index_directory", around(self._list_files))
        replace_after_import(image, "DirectoryIterator.__init__", around(self._iterate_files))
        replace_tfds(self.note)
        replace_hugging_face(self.note)
        return self

    def note(self, what: str, data: PublicData) -> None:
        """Record that a public data set was stood in for."""
        has_words = any(field.dtype in ("string", "sequence") and field.shape[0] != 1 for field in data.fields)
        self._note_missing(f"its shapes, types and sizes stand in for it{PLACEHOLDERS * has_words}", what)

    def _note_missing(self, what: str, name: str) -> None:
        how = "could not be loaded" if self.terms.downloads else "was not downloaded"
        self._note(f"{name} {how}: {what}")

    def _note(self, note: str) -> None:
        """Say that something is a stand-in; how fast it comes says nothing of the data."""
        self.notes[note] = None
        data_is_replaced.set()

    def _build_keras_data(self, name: str, data: PublicData, given: dict[str, Any]) -> tuple[Any, ...]:
        self.note(f"keras.datasets.{name}", data)
        if given.get("maxlen"):
            self._note(f"samples longer than `maxlen`, which keras.datasets.{name} drops, are counted")
        return build_keras_data(data, given)

    def _write_file(self, fname: Any, origin: str, extract: bool, untar: bool, **how: Any) -> str | None:
        """Return the path of a stand-in for a file, or for the folder of its content; None if it is unknown."""
        name = origin.rpartition("/")[2]
        text, archive = find_public_data("text", name), find_public_data("archive", name)
        stem = str(fname or name)
        path = self.folder / stem
        if text is not None:
            letters = cycle(text.content.replace(r"\n", "\n"))
            content = "".join(islice(letters, text.sizes["characters"]))
            path.write_text(content, encoding="utf-8", newline="\n")
            self._note_missing("a text of its length and characters stands in for it", name)
        elif archive is not None and (extract or untar):
            path = self.folder / (f"{stem.partition('.')[0]}_extracted" if fname and "." in stem else stem)
            if not path.exists():
                write_folder(path, archive.sizes, ending=archive.content)
            self._note_missing("equal files, as many as it has, stand in for it", name)
        else:
            return None
        return str(path)

    def _list_files(
        self, index: Any, directory: Any, labels: Any, formats: Any, class_names: Any = None, **how: Any
    ) -> Any:
        """List files as for `image_dataset_from_directory` and the like."""
        classes = class_names if isinstance(labels, str) else [""]
        samples = len(labels) if isinstance(labels, (list, tuple)) else None
        found = self._find_folder(directory, formats[0], classes, samples)
        return index(found, labels, formats, class_names=class_names, **how)

    def _iterate_files(
        self, start: Any, made: Any, directory: Any, generator: Any, *args: Any, **kwargs: Any
    ) -> None:
        """List files as for generators of Keras 2."""
        bound = inspect.signature(start).bind(made, directory, generator, *args, **kwargs).arguments
        usual = {None: ["all"], "binary": ["class_0", "class_1"]}.get(bound.get("class_mode", ""))
        classes = bound.get("classes") or usual
        start(made, self._find_folder(directory, ".jpg", classes, None), generator, *args, **kwargs)

    def _find_folder(self, directory: Any, ending: str, classes: Sequence[str] | None, samples: int | None) -> Any:
        """Return a folder, or one of stand-ins if it is missing or empty."""
        path = str(directory)
        if "://" in path or (os.path.isdir(path) and os.listdir(path)):
            return directory
        names = classes or [f"class_{number:04d}" for number in range(self.terms.classes or 0)]
        share = HELD_OUT_SHARE if os.path.basename(path).lower().startswith(HELD_OUT_NAMES) else 1.0
        count = samples or (None if self.terms.samples is None else max(1, round(self.terms.samples * share)))
        if not names or count is None:
            line = find_user_line(sys._getframe(1), (str(self.own),))
            where = f"{line}: " if line else ""
            flags = "--samples N " * (count is None) + "--assume classes=N" * (not names)
            message = f"{where}the folder `{path}` is missing or empty (looked for in {os.getcwd()})"
            hint = f"`{flags.strip()}` plans with as many stand-ins; or run it where the folder is"
            raise CaptureError(message, hint=hint)
        self.is_as_stated = True
        folder = self.folder / f"folder-{len(self.notes)}"
        per_class = {name: len(range(number, count, len(names))) for number, name in enumerate(names)}
        write_folder(folder, per_class, ending=ending)
        of = f" of {len(names)} classes" if len(names) > 1 else ""
        part = f" ({share:.0%} of `--samples`, assumed)" if share < 1 and samples is None else ""
        self._note(f"the folder `{path}` is missing or empty: {count} stand-ins{of} take its place{part}")
        return str(folder)


def _stand_in_for(module: str, name: str, build: Callable[[dict[str, Any]], Any]) -> None:
    """Let a function of Keras return what `build` makes of all its arguments, where it cannot load."""

    def build_for(load: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(load).bind(*args, **kwargs)
        bound.apply_defaults()
        return build(bound.arguments)

    for package in KERAS_PACKAGES:
        call = partial(load_or_build, build_for, is_from_loader)
        replace_after_import(f"{package}.{module}", name, around(call))


def _look_up_here(look_up: Any, host: Any, *args: Any, **kwargs: Any) -> Any:
    if host in (None, "localhost", "127.0.0.1", "::1"):
        return look_up(host, *args, **kwargs)
    raise socket.gaierror(socket.EAI_FAIL, f"{SWITCH} is false")


def build_keras_data(data: PublicData, given: dict[str, Any]) -> tuple[Any, ...]:
    """Return the pairs of arrays of `load_data`, for training and test, by all arguments of the call."""
    if "test_split" in given:
        samples = SMALL_SAMPLES if given.get("version") == "small" else sum(data.sizes.values())
        first = int(samples * (1 - given["test_split"]))
        counts = [first, samples - first]
    else:
        counts = list(data.sizes.values())
    x, y = data.fields
    if given.get("label_mode") == "coarse":
        y = DataField(y.name, y.dtype, y.shape, COARSE_CLASSES)
    build = partial(_build_sequences, given=given) if x.dtype == "sequence" else build_array
    return tuple((build(x, count), build_array(y, count)) for count in counts)


def build_array(field: DataField, samples: int) -> Any:
    """Return an array of a field: classes take turns, measurements lie from 0 to 1, and zeros use no memory."""
    sizes = [size or 1 for size in field.shape]
    if field.bound is not None:
        labels = (np.arange(samples) % field.bound).astype(field.dtype)
        return labels.reshape(samples, *sizes)
    if field.dtype.startswith("float"):
        return np.random.default_rng(0).random((samples, *sizes)).astype(field.dtype)
    if len(sizes) > 2 and keras.config.image_data_format() == "channels_first":
        sizes = [sizes[-1], *sizes[:-1]]
    pixels = np.zeros((samples, *sizes), field.dtype)
    pixels[:1] = BRIGHTEST  # a script may divide by it
    return pixels


def _build_sequences(field: DataField, samples: int, *, given: dict[str, Any]) -> Any:
    """Return lists of word indices: one as long as the longest, with the last index; the others of mean length."""
    usual, longest = (min(size or 1, (given["maxlen"] or sys.maxsize) - 1) for size in field.shape)
    words = given["num_words"] or (field.bound or 0) + (given["index_from"] or 0)
    lowest = min(4, words - 1)
    lists = [[lowest + n % (words - lowest) for n in range(usual)], [words - 1] + [lowest] * (longest - 1)]
    found = np.empty(samples, object)
    for number in range(samples):
        found[number] = lists[number == 0]
    return found

"""Stand-ins for data that a script cannot reach, of the right shapes, types and number of samples."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import keras
import numpy as np

from ..errors import CaptureError, find_user_line
from ..options import DataTerms
from ..script_text import SWITCH, is_from_loader
from .feeding import stop_measuring_inputs
from .stand_in_datasets import (
    DataField,
    PublicData,
    build_text,
    find_public_data,
    or_else,
    read_public_data,
    replace_hugging_face,
    replace_tfds,
    write_folder,
)
from .watch import call_after_import

# Packages by which Keras offers its functions; the last is that of `tf.keras`.
KERAS_PACKAGES = ("keras.src", "keras", "keras._tf_keras.keras")
SMALL_SAMPLES = 600  # of `california_housing` [-]
BRIGHTEST = 255
COARSE_CLASSES = 20  # of `cifar100` [-]
HELD_OUT_NAMES = ("val", "test", "dev", "eval")
HELD_OUT_SHARE = 0.2
PLACEHOLDERS = "; its words are placeholders, so a vocabulary learned from them has another size"


class StandInData:
    """Replacements of the functions that load data: what they cannot reach is stood in for, and noted.

    `terms`: whether to download, and the size of folders that are missing; `own`: folder of the user's own files.
    """

    def __init__(self, terms: DataTerms, *, folder: Path, own: Path) -> None:
        self.terms, self.folder, self.own = terms, folder, own
        self._notes: dict[str, None] = {}
        self.is_as_stated = False  # whether a size that the user stated was used

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data replaced by stand-ins; empty for none."""
        return tuple(self._notes)

    def install(self) -> StandInData:
        """Replace the functions from now on."""
        if not self.terms.downloads:
            _refuse_downloads()
        for library, name in read_public_data():
            if library == "keras":
                self._replace_keras_data(name)
        self._replace_get_file()
        self._replace_folders()
        replace_tfds(self.note)
        call_after_import("datasets", partial(replace_hugging_face, self.note))
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
        self._notes[note] = None
        stop_measuring_inputs()

    # --- functions of Keras -------------------------------------------------------------------------------

    def _replace_keras_data(self, name: str) -> None:
        """Replace `keras.datasets.NAME.load_data` and `get_word_index`."""
        data = find_public_data("keras", name)
        module = import_module(f"keras.src.datasets.{name}")
        if data is None:
            return
        signature = inspect.signature(module.load_data)

        def build(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            self.note(f"keras.datasets.{name}", data)
            if bound.arguments.get("maxlen"):
                self._note(f"samples longer than `maxlen`, which keras.datasets.{name} drops, are counted")
            return build_keras_data(data, bound.arguments)

        _replace(f"datasets.{name}", "load_data", or_else(module.load_data, build, where=is_from_loader))
        if hasattr(module, "get_word_index"):
            words = data.fields[0].bound or 0
            index = or_else(
                module.get_word_index, lambda *_: {f"w{n}": n for n in range(1, words + 1)}, where=is_from_loader
            )
            _replace(f"datasets.{name}", "get_word_index", index)

    def _replace_get_file(self) -> None:
        """Replace `keras.utils.get_file` for the texts and archives of the table."""
        get_file = import_module("keras.src.utils.file_utils").get_file
        signature = inspect.signature(get_file)

        def build(*args: Any, **kwargs: Any) -> str | None:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return self._write_file(**bound.arguments)

        replacement = or_else(get_file, build, where=is_from_loader)
        for module in ("utils.file_utils", "utils"):
            _replace(module, "get_file", replacement)

    def _write_file(self, fname: Any, origin: str, extract: bool, untar: bool, **how: Any) -> str | None:
        """Return the path of a stand-in for a file, or for the folder of its content; None if it is unknown."""
        name = origin.rpartition("/")[2]
        text, archive = find_public_data("text", name), find_public_data("archive", name)
        stem = str(fname or name)
        path = self.folder / stem
        if text is not None:
            path.write_text(build_text(text.content, text.sizes["characters"]), encoding="utf-8", newline="\n")
            self._note_missing("a text of its length and characters stands in for it", name)
        elif archive is not None and (extract or untar):
            path = self.folder / (f"{stem.partition('.')[0]}_extracted" if fname and "." in stem else stem)
            if not path.exists():
                write_folder(path, archive.sizes, ending=archive.content)
            self._note_missing("equal files, as many as it has, stand in for it", name)
        else:
            return None
        return str(path)

    # --- folders ------------------------------------------------------------------------------------------

    def _replace_folders(self) -> None:
        """Replace the listing of files by `image_dataset_from_directory` and the like, and of generators."""
        listing: Any = import_module("keras.src.utils.dataset_utils")
        index = listing.index_directory

        @wraps(index)
        def index_directory(directory: Any, labels: Any, formats: Any, class_names: Any = None, **how: Any) -> Any:
            classes = class_names if isinstance(labels, str) else [""]
            samples = len(labels) if isinstance(labels, (list, tuple)) else None
            found = self._find_folder(directory, formats[0], classes, samples)
            return index(found, labels, formats, class_names=class_names, **how)

        listing.index_directory = index_directory
        iterator = import_module("keras.src.legacy.preprocessing.image").DirectoryIterator
        start = iterator.__init__

        @wraps(start)
        def __init__(made: Any, directory: Any, generator: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            bound = inspect.signature(start).bind(made, directory, generator, *args, **kwargs).arguments
            usual = {None: ["all"], "binary": ["class_0", "class_1"]}.get(bound.get("class_mode", ""))
            classes = bound.get("classes") or usual
            start(made, self._find_folder(directory, ".jpg", classes, None), generator, *args, **kwargs)

        iterator.__init__ = __init__

    def _find_folder(self, directory: Any, ending: str, classes: Sequence[str] | None, samples: int | None) -> Any:
        """Return a folder, or one of stand-ins if it is missing or empty."""
        path = str(directory)
        if "://" in path or (os.path.isdir(path) and os.listdir(path)):
            return directory
        names = classes or [f"class_{number:04d}" for number in range(self.terms.classes or 0)]
        share = HELD_OUT_SHARE if os.path.basename(path).lower().startswith(HELD_OUT_NAMES) else 1.0
        count = samples or (None if self.terms.samples is None else max(1, round(self.terms.samples * share)))
        if not names or count is None:
            self._refuse_folder(path, needs_classes=not names, needs_samples=count is None)
        self.is_as_stated = True
        folder = self.folder / f"folder-{len(self._notes)}"
        per_class = {name: len(range(number, count, len(names))) for number, name in enumerate(names)}
        write_folder(folder, per_class, ending=ending)
        of = f" of {len(names)} classes" if len(names) > 1 else ""
        part = f" ({share:.0%} of `--samples`, assumed)" if share < 1 and samples is None else ""
        self._note(f"the folder `{path}` is missing or empty: {count} stand-ins{of} take its place{part}")
        return str(folder)

    def _refuse_folder(self, path: str, *, needs_classes: bool, needs_samples: bool) -> NoReturn:
        line = find_user_line(sys._getframe(1), (str(self.own),))
        flags = "--samples N " * needs_samples + "--assume classes=N" * needs_classes
        raise CaptureError(
            f"{f'{line}: ' if line else ''}the folder `{path}` is missing or empty (looked for in {os.getcwd()})",
            hint=f"`{flags.strip()}` plans with as many stand-ins; or run it where the folder is",
        )


def _refuse_downloads() -> None:
    """Let every connection to another machine fail at once."""
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host in (None, "localhost", "127.0.0.1", "::1"):
            return look_up(host, *args, **kwargs)
        raise socket.gaierror(socket.EAI_FAIL, f"{SWITCH} is false")

    socket.getaddrinfo = getaddrinfo
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ[name] = "1"


def _replace(module: str, name: str, function: Callable[..., Any]) -> None:
    for package in KERAS_PACKAGES:
        owner = sys.modules.get(f"{package}.{module}")
        if owner is not None and hasattr(owner, name):
            setattr(owner, name, function)


# --- arrays of `keras.datasets` ---------------------------------------------------------------------------


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
    """Return an array of a field; its memory is used where it is written to, except that of labels.

    Classes take turns, and measurements lie from 0 to 1.
    """
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

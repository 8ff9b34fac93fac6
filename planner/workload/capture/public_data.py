"""Known public data sets: shapes, types and number of samples, read from `public_data.csv`."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Library = Literal["keras", "tfds", "huggingface", "text", "archive"]
USUAL_CONFIGS = ("default", "plain_text", "split")
_FIELD = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[a-z]+\d*)(?::(?P<shape>[\dx*]+))?(?:<(?P<bound>\d+))?")
_PART = re.compile(r"(\w+)(?:\[(-?[\d_]+%?)?:(-?[\d_]+%?)?\])?")


@dataclass(frozen=True, slots=True)
class DataField:
    """A field of a sample.

    Args:
        name: Name of the field.
        dtype: NumPy name of its type; or `string` (of words), `image`, or `sequence` (of word indices).
        shape: Shape, None for a dimension that differs between samples; of a string, its usual number of words; of
            a sequence, the usual and the longest length.
        bound: Number of classes, or words of the vocabulary [-].
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    bound: int | None


@dataclass(frozen=True, slots=True)
class PublicData:
    """A public data set: a row of the table.

    Args:
        library: What loads it.
        names: Its names there.
        content: Fields of a sample; of a text its characters, of an archive the ending of its files.
        sizes: Number of samples by split; of a text, its length; of an archive, number of files by folder.
        source: Address of the page that states them.
    """

    library: str
    names: tuple[str, ...]
    content: str
    sizes: dict[str, int]
    source: str

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Fields of a sample, first those that `as_supervised` returns."""
        return tuple(_parse_field(text) for text in self.content.split())

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


def _parse_field(text: str) -> DataField:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sizes = tuple(None if size == "*" else int(size) for size in (found["shape"] or "").split("x") if size)
    return DataField(found["name"], found["dtype"], sizes, None if found["bound"] is None else int(found["bound"]))


def _cut(bound: str | None, size: int) -> int | None:
    """Return an end of a slice in samples, percentages rounded."""
    if not bound:
        return None
    return round(size * int(bound[:-1]) / 100) if bound.endswith("%") else int(bound)


@cache
def read_public_data() -> dict[tuple[str, str], PublicData]:
    """Return all rows of the table by library and name."""
    found = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
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
    rows = read_public_data()
    plain = name.partition(":")[0]
    whole = rows.get((library, f"{plain}/{config}" if config else plain))
    if whole is not None:
        return whole
    if config is None and library == "tfds":
        plain, _, config = plain.partition("/")
    usual = config in (None, *USUAL_CONFIGS, plain.rpartition("/")[2])
    return rows.get((library, plain)) if usual else None

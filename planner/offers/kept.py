"""Rows and texts that were read and checked before, kept by content: checking takes longer than an answer.

An entry's name is a digest of the text that it was made of, of the type of its rows and of the code that reads
them, so that an entry is never out of date, only unused. Its first line is the digest of the rest: what is
damaged, or not what it should be, counts as not there, is read anew, and is written anew. An entry holds JSON,
column by column; nothing in it is run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from .._version import __version__
from ..files import cache_folder, keep_newest, write_whole
from .rows import Row

__all__ = ["kept_rows", "kept_table"]

R = TypeVar("R", bound=Row)
T = TypeVar("T")

NEWEST_OF_A_KIND = 32  # entries that stay: one a price file, and those of other catalogs and versions
FEW = 4  # values that stand so often or more each are written once [-]
# How the values of a column are written where JSON has no type for them, and how they are read.
_WRITTEN: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "decimal": (Decimal, str, Decimal),
    "date": (date, date.isoformat, date.fromisoformat),
    "tuple": (tuple, list, tuple),
}


def kept_rows(model: type[R], *texts: str, make: Callable[[], Iterable[R]]) -> tuple[R, ...]:
    """Return the rows that are made of some texts, from an earlier time where they were kept.

    Args:
        model: What a row is.
        texts: Everything that the rows depend on.
        make: Reads and checks them; what it raises is raised, and nothing is kept.
    """

    def decode(columns: Any) -> tuple[R, ...]:
        names = tuple(field.name for field in fields(model))
        if tuple(columns) != names:
            raise ValueError("not the fields of the row")
        values = [_column(columns[name]) for name in names]
        return tuple(model.trusted(names, row) for row in zip(*values, strict=True))

    def encode(rows: tuple[R, ...]) -> dict[str, Any]:
        return {f.name: _written([getattr(row, f.name) for row in rows]) for f in fields(model)}

    return _kept(
        f"{model.__module__.rpartition('.')[2]}-{model.__name__}",
        texts,
        lambda: tuple(make()),
        encode,
        decode,
    )


def kept_table(kind: str, *texts: str, make: Callable[[], dict[str, T]]) -> dict[str, T]:
    """Return a table of text to text, or to tuples of them, that is made of some texts, as `kept_rows` does.

    Args:
        kind: What it is called among the entries.
        texts: Everything that it depends on.
        make: Reads and checks it.
    """

    def decode(table: Any) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}

    return _kept(kind, texts, make, dict, decode)


def _kept(
    kind: str,
    texts: tuple[str, ...],
    make: Callable[[], T],
    encode: Callable[[T], Any],
    decode: Callable[[Any], T],
) -> T:
    name = f"{kind}-{_digest(_code(), kind, *texts)}"
    path = cache_folder("catalog") / name
    try:
        stated, _, body = path.read_text(encoding="utf-8").partition("\n")
        if stated == _digest(body):
            return decode(json.loads(body))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        pass  # not there, or damaged: read anew, and written anew
    made = make()
    _keep(path, kind, json.dumps(encode(made), ensure_ascii=False, separators=(",", ":")))
    return made


def _keep(path: Path, kind: str, body: str) -> None:
    """Write an entry; where that cannot be, the next start takes as long as this one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{_digest(body)}\n{body}")
        keep_newest(path.parent, f"{kind}-*", files=NEWEST_OF_A_KIND)
    except OSError:
        pass


def _written(values: list[Any]) -> list[Any]:
    """Return a column as JSON: what its values are, each different value once, and which of them stands where."""
    kind, write = "plain", None
    for name, (of, how, _) in _WRITTEN.items():
        if any(isinstance(value, of) for value in values):
            kind, write = name, how
    plain = [value if write is None or value is None else write(value) for value in values]
    if kind == "tuple":
        return [kind, plain]
    places: dict[tuple[type, Any], int] = {}
    found = [places.setdefault((type(value), value), len(places)) for value in plain]  # 1 is not 1.0 here
    if FEW * len(places) > len(plain):
        return [kind, plain]
    return [kind, [value for _, value in places], found]


def _column(column: Any) -> list[Any]:
    """Return the values of a column that `_written` made."""
    kind, values, *places = column
    if kind != "plain":
        read = _WRITTEN[kind][2]
        values = [None if value is None else read(value) for value in values]
    return [values[place] for place in places[0]] if places else list(values)


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d\n" % len(data))
        digest.update(data)
    return digest.hexdigest()[:32]


@cache
def _code() -> str:
    """Return what tells one state of the code that reads and checks from another, without reading it."""
    stamps = [sys.version, __version__]
    for file in sorted(Path(__file__).parent.glob("*.py")):
        status = file.stat()
        stamps.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(stamps)

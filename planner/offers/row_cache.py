"""Content-addressed cache of validated catalog rows, since validation takes longer than an estimate.

An entry is named by a digest of its source text, its row type and the code that reads them, so entries never
become outdated, only unused. The first line is the digest of the rest; a damaged entry is ignored and
rewritten. Entries hold JSON by column and are never executed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from .._version import __version__
from ..files import delete_oldest, get_cache_folder, write_atomically
from .rows import Row

R = TypeVar("R", bound=Row)
T = TypeVar("T")

MAX_ENTRIES_PER_KIND = 32  # entries kept per kind: one per price file and version of the catalog
MIN_REPETITIONS = 4  # mean repetitions per distinct value from which a column is dictionary-encoded [-]
# Encoders and decoders of values that have no JSON type.
_CODECS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "decimal": (Decimal, str, Decimal),
    "date": (date, date.isoformat, date.fromisoformat),
    "tuple": (tuple, list, tuple),
}


def cache_rows(model: type[R], *texts: str, make: Callable[[], Iterable[R]]) -> tuple[R, ...]:
    """Return the rows parsed from some texts, cached by content.

    Args:
        model: Type of a row.
        texts: All texts that the rows depend on.
        make: Parses and validates the rows; its exceptions propagate, and nothing is cached.
    """

    def decode(columns: Any) -> tuple[R, ...]:
        names = tuple(field.name for field in fields(model))
        if tuple(columns) != names:
            raise ValueError("not the fields of the row")
        values = [_decode_column(columns[name]) for name in names]
        return tuple(model.trusted(names, row) for row in zip(*values, strict=True))

    def encode(rows: tuple[R, ...]) -> dict[str, Any]:
        return {f.name: _encode_column([getattr(row, f.name) for row in rows]) for f in fields(model)}

    kind = f"{model.__module__.rpartition('.')[2]}-{model.__name__}"
    return _load_or_make(kind, texts, lambda: tuple(make()), encode, decode)


def cache_table(kind: str, *texts: str, make: Callable[[], dict[str, T]]) -> dict[str, T]:
    """Return a table of strings, or of string tuples, cached by content like the rows of `cache_rows`.

    Args:
        kind: Prefix of the cache entry's name.
        texts: All texts that the table depends on.
        make: Parses and validates the table.
    """

    def decode(table: Any) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}

    return _load_or_make(kind, texts, make, dict, decode)


def _load_or_make(
    kind: str,
    texts: tuple[str, ...],
    make: Callable[[], T],
    encode: Callable[[T], Any],
    decode: Callable[[Any], T],
) -> T:
    name = f"{kind}-{_compute_digest(_fingerprint_code(), kind, *texts)}"
    path = get_cache_folder("catalog") / name
    # A missing or damaged entry is parsed and rewritten.
    with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        stated, _, body = path.read_text(encoding="utf-8").partition("\n")
        if stated == _compute_digest(body):
            return decode(json.loads(body))
    made = make()
    body = json.dumps(encode(made), ensure_ascii=False, separators=(",", ":"))
    with suppress(OSError):  # a folder that cannot be written
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{_compute_digest(body)}\n{body}")
        delete_oldest(path.parent, f"{kind}-*", files=MAX_ENTRIES_PER_KIND)
    return made


def _encode_column(values: list[Any]) -> list[Any]:
    """Encode a column as JSON: value type, distinct values and, for repetitive columns, indices into them."""
    kind, write = "plain", None
    for name, (of, how, _) in _CODECS.items():
        if any(isinstance(value, of) for value in values):
            kind, write = name, how
    plain = [value if write is None or value is None else write(value) for value in values]
    if kind == "tuple":
        return [kind, plain]
    places: dict[tuple[type, Any], int] = {}
    found = [places.setdefault((type(value), value), len(places)) for value in plain]  # 1 is not 1.0 here
    if MIN_REPETITIONS * len(places) > len(plain):
        return [kind, plain]
    return [kind, [value for _, value in places], found]


def _decode_column(column: Any) -> list[Any]:
    """Decode a column of `_encode_column`."""
    kind, values, *places = column
    if kind != "plain":
        read = _CODECS[kind][2]
        values = [None if value is None else read(value) for value in values]
    return [values[place] for place in places[0]] if places else list(values)


def _compute_digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d\n" % len(data))
        digest.update(data)
    return digest.hexdigest()[:32]


@cache
def _fingerprint_code() -> str:
    """Return a fingerprint of the parsing code: sizes and modification times of its files."""
    stamps = [sys.version, __version__]
    for file in sorted(Path(__file__).parent.glob("*.py")):
        status = file.stat()
        stamps.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(stamps)

"""Parser of catalog files: TOML tables and CSV lines to typed rows with their locations.

An invalid row becomes a finding with file, line and field. Callers either stop at the first finding
(``load``) or list them all (``check``).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date, datetime
from decimal import Decimal
from functools import cache, cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._version import __version__
from ..errors import UsageError
from ..files import delete_oldest, get_cache_folder, write_atomically
from .rows import Offer, Row

if TYPE_CHECKING:
    from pydantic import ValidationError


R = TypeVar("R", bound=Row)
T = TypeVar("T")

MAX_ENTRIES_PER_KIND = 32  # entries kept per kind: one per price file and version of the catalog
MIN_REPETITIONS = 4  # mean repetitions per distinct value from which a column is dictionary-encoded [-]
# Encoders and decoders of values that have no JSON type.
_CODECS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "decimal": (Decimal, str, Decimal),
    "date": (date, date.isoformat, date.fromisoformat),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
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


PRICE_COLUMNS = (
    "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase", "usd_per_hour",
    "as_of", "source", "estimated", "complete", "status", "note",
)  # fmt: skip
_OFFER_FIELDS = tuple({"as_of": "price_as_of", "source": "price_source"}.get(c, c) for c in PRICE_COLUMNS)
_NULLABLE = ("vcpus", "memory_gib", "usd_per_hour")


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in a catalog file and its location."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class Located(Generic[R]):
    """A row and its location in a file."""

    row: R
    file: str
    line: int

    def finding(self, field: str, message: str) -> Finding:
        """Return a finding on a field of this row, located at the row's line."""
        return Finding(self.file, self.line, field, message)


class CatalogError(UsageError):
    """An invalid catalog file, with all findings in it."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        first = self.findings[0]
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        super().__init__(
            f"{first.file}, line {first.line}, `{first.field}`: {first.message}{more}",
            hint="run `gpuplan catalog check FOLDER` to list all errors",
        )


@dataclass(frozen=True)
class Table:
    """The text of a TOML file, parsed on first access; keeps the text to locate rows by line."""

    file: str
    text: str

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The parsed content; CatalogError if it is not valid TOML."""
        import tomllib

        try:
            return tomllib.loads(self.text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"line (\d+)", str(error))
            line = int(place.group(1)) if place else len(self.text.splitlines())
            raise CatalogError([Finding(self.file, line, "TOML", str(error))]) from error

    def line_of(self, array: str, index: int, field: str | None = None) -> int:
        """Return the line of the index-th ``[[array]]`` header, or of a field in it if present."""
        headers = self.header_lines(array)
        if index >= len(headers):  # written as an inline array
            return 1
        start = headers[index]
        for number, line in enumerate(self.text.splitlines()[start:], start + 1):
            if line.startswith("[") or field is None:
                break
            if _compile_assignment(field).match(line):
                return number
        return start

    def line_of_key(self, key: str) -> int:
        """Return the line of the first ``key = ...`` in the file; 1 if there is none."""
        pattern = _compile_assignment(key)
        hits = (number for number, line in enumerate(self.text.splitlines(), 1) if pattern.match(line))
        return next(hits, 1)

    def header_lines(self, array: str) -> list[int]:
        """Return the lines of the ``[[array]]`` headers."""
        lines = enumerate(self.text.splitlines(), 1)
        return [number for number, line in lines if line.strip() == f"[[{array}]]"]


def _compile_assignment(key: str) -> re.Pattern[str]:
    """Return the pattern of the start of a line ``key = ...``."""
    return re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")


def require_valid(rows: Iterable[Located[R]], findings: Iterable[Finding]) -> Iterable[R]:
    """Return the rows without their locations; CatalogError if there are findings."""
    if findings := tuple(findings):
        raise CatalogError(findings)
    return (located.row for located in rows)


def read_table(folder: Traversable, name: str) -> Table:
    """Read a TOML file of the catalog; CatalogError if it is missing."""
    return Table(name, _read_text(folder / name, name))


def read_text_table(table: Table, key: str) -> dict[str, str]:
    """Read a table of strings (``[sources]``); CatalogError for anything else."""
    entries = table.data.get(key)
    if not isinstance(entries, dict):
        raise CatalogError([Finding(table.file, 1, key, f"the table `[{key}]` is missing")])
    for name, value in entries.items():
        if not isinstance(value, str) or not value.strip():
            line = table.line_of_key(name)
            raise CatalogError([Finding(table.file, line, name, "is not a string, or is empty")])
    return dict(entries)


def read_list_table(table: Table, key: str) -> dict[str, tuple[str, ...]]:
    """Read a table of string lists, empty if absent; CatalogError for anything else."""
    entries = table.data.get(key, {})
    if not isinstance(entries, dict):
        raise CatalogError([Finding(table.file, table.line_of_key(key), key, "is not a table")])
    for name, values in entries.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise CatalogError([Finding(table.file, table.line_of_key(name), name, "is not a list of strings")])
    return {name: tuple(values) for name, values in entries.items()}


def load_table(table: Table, key: str, read: Callable[[Table, str], dict[str, T]]) -> dict[str, T]:
    """Read a table with `read_text_table` or `read_list_table`, through the row cache."""

    def decode(entries: Any) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()}

    return _load_or_make("table", (key, table.text), lambda: read(table, key), dict, decode)


def read_rows(table: Table, array: str, model: type[R]) -> tuple[list[Located[R]], list[Finding]]:
    """Return the valid rows of ``[[array]]`` and the findings on all others."""
    from pydantic import ValidationError

    entries = table.data.get(array, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [], [Finding(table.file, table.line_of_key(array), array, f"is not a list of `[[{array}]]`")]
    rows: list[Located[R]] = []
    findings: list[Finding] = []
    headers = table.header_lines(array)
    for index, entry in enumerate(entries):
        try:
            line = headers[index] if index < len(headers) else 1
            rows.append(Located(model.read(entry), table.file, line))
        except ValidationError as error:
            for field, message in _format_messages(error):
                findings.append(Finding(table.file, table.line_of(array, index, field), field, message))
    return rows, findings


def load_rows(table: Table, array: str, model: type[R]) -> tuple[R, ...]:
    """Read the rows of ``[[array]]`` through the row cache; CatalogError if one is invalid."""
    return cache_rows(model, array, table.text, make=lambda: require_valid(*read_rows(table, array, model)))


def load_prices(file: Traversable, provider: str, sources: Mapping[str, str]) -> tuple[Offer, ...]:
    """Read the offers of a price file through the row cache; CatalogError if a line is invalid."""
    text = _read_text(file, f"prices/{file.name}")
    named = (f"{key}={source}" for key, source in sources.items())
    make = lambda: require_valid(*read_prices(file, provider, sources))  # noqa: E731
    return cache_rows(Offer, provider, text, *named, make=make)


def read_prices(
    file: Traversable, provider: str, sources: Mapping[str, str]
) -> tuple[list[Located[Offer]], list[Finding]]:
    """Return the offers of one provider's CSV file and the findings on its invalid lines.

    Args:
        file: ``prices/<provider>.csv``.
        provider: The provider, as in the file name.
        sources: Key of the source column to the full text of the source.
    """
    name = f"prices/{file.name}"
    reader = csv.reader(io.StringIO(_read_text(file, name), newline=""))
    header = next(reader, [])
    if tuple(header) != PRICE_COLUMNS:
        return [], [Finding(name, 1, "header", f"is not `{','.join(PRICE_COLUMNS)}`")]
    rows: list[Located[Offer]] = []
    findings: list[Finding] = []
    for cells in reader:
        result = _parse_offer(cells, provider, sources)
        if isinstance(result, Offer):
            rows.append(Located(result, name, reader.line_num))
        else:
            findings += [Finding(name, reader.line_num, field, message) for field, message in result]
    return rows, findings


def _parse_offer(cells: list[str], provider: str, sources: Mapping[str, str]) -> Offer | list[tuple[str, str]]:
    """Parse one CSV line to an offer, or to (field, error message) pairs."""
    if len(cells) != len(PRICE_COLUMNS):
        return [("columns", f"{len(cells)} cells where {len(PRICE_COLUMNS)} are expected")]
    source = sources.get(cells[9])
    if source is None:
        return [("source", f"`{cells[9]}` is not a key of sources.toml")]
    values: dict[str, Any] = dict(zip(_OFFER_FIELDS, cells, strict=True))
    values |= {name: values[name] or None for name in _NULLABLE}
    values |= {"price_source": source, "provider": provider}
    from pydantic import ValidationError

    try:
        return Offer.read(values)
    except ValidationError as error:
        columns = dict(zip(_OFFER_FIELDS, PRICE_COLUMNS, strict=True))
        return [(columns.get(field, field), message) for field, message in _format_messages(error)]


def _format_messages(error: ValidationError) -> list[tuple[str, str]]:
    """Return (field, error message) pairs of a validation error in plain words."""
    found = []
    for detail in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in detail["loc"]) or "row"
        given = "" if detail["type"] == "missing" else f" (got `{detail['input']}`)"
        message = {"missing": "is missing", "unexpected_keyword_argument": "is not a known field"}.get(
            detail["type"], detail["msg"].lower()
        )
        found.append((field, f"{message}{given}"))
    return found


def _read_text(file: Traversable, name: str) -> str:
    """Read a text file of the catalog; CatalogError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CatalogError([Finding(name, 1, "file", f"cannot be read: {reason}")]) from error

"""Parser of catalog files: TOML tables and CSV lines to typed rows with their locations.

An invalid row becomes a finding with file, line and field. Callers either stop at the first finding
(``load``) or list them all (``check``).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import UsageError
from .row_cache import cache_rows, cache_table
from .rows import Offer, Row

if TYPE_CHECKING:
    from pydantic import ValidationError

PRICE_COLUMNS = (
    "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase", "usd_per_hour",
    "as_of", "source", "estimated", "complete", "status", "note",
)  # fmt: skip
_OFFER_FIELDS = tuple({"as_of": "price_as_of", "source": "price_source"}.get(c, c) for c in PRICE_COLUMNS)
_OPTIONAL = {index for index, c in enumerate(PRICE_COLUMNS) if c in {"vcpus", "memory_gib", "usd_per_hour"}}

R = TypeVar("R", bound=Row)
T = TypeVar("T")


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


def cache_located(
    model: type[R], *texts: str, read: Callable[[], tuple[list[Located[R]], list[Finding]]]
) -> tuple[R, ...]:
    """Read rows through the row cache; CatalogError if there are findings.

    Args:
        model: Type of a row.
        texts: All texts that the rows depend on.
        read: Returns the valid rows and the findings on all others.
    """

    def make() -> Iterator[R]:
        rows, findings = read()
        if findings:
            raise CatalogError(findings)
        return (located.row for located in rows)

    return cache_rows(model, *texts, make=make)


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
            raise CatalogError(
                [Finding(table.file, table.line_of_key(name), name, "is not a list of strings")]
            )
    return {name: tuple(values) for name, values in entries.items()}


def load_table(table: Table, key: str, read: Callable[[Table, str], dict[str, T]]) -> dict[str, T]:
    """Read a table with `read_text_table` or `read_list_table`, through the row cache."""
    return cache_table("table", key, table.text, make=lambda: read(table, key))


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
    return cache_located(model, array, table.text, read=lambda: read_rows(table, array, model))


def load_prices(file: Traversable, provider: str, sources: Mapping[str, str]) -> tuple[Offer, ...]:
    """Read the offers of a price file through the row cache; CatalogError if a line is invalid."""
    text = _read_text(file, f"prices/{file.name}")
    named = (f"{key}={source}" for key, source in sources.items())
    return cache_located(Offer, provider, text, *named, read=lambda: read_prices(file, provider, sources))


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


def _parse_offer(
    cells: list[str], provider: str, sources: Mapping[str, str]
) -> Offer | list[tuple[str, str]]:
    """Parse one CSV line to an offer, or to (field, error message) pairs."""
    if len(cells) != len(PRICE_COLUMNS):
        return [("columns", f"{len(cells)} cells where {len(PRICE_COLUMNS)} are expected")]
    source = sources.get(cells[9])
    if source is None:
        return [("source", f"`{cells[9]}` is not a key of sources.toml")]
    values: dict[str, Any] = dict(zip(_OFFER_FIELDS, cells, strict=True))
    for index in _OPTIONAL:
        if not cells[index]:
            values[_OFFER_FIELDS[index]] = None
    values["price_source"] = source
    values["provider"] = provider
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

"""Parser of catalog files: TOML tables and CSV lines to typed rows with their locations.

An invalid row becomes a finding with file, line and field. Callers either stop at the first finding
(``load``) or list them all (``check``).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from importlib.resources.abc import Traversable
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ..errors import UsageError
from .rows import UNREAD, Offer, Row, find_optional_fields

if TYPE_CHECKING:
    from pydantic import ValidationError

R = TypeVar("R", bound=Row)
Columns = Mapping[str, Sequence[Any]]

PRICE_COLUMNS = (
    "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase", "usd_per_hour",
    "as_of", "source", "estimated", "complete", "status", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in a catalog file and its location."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.message}"


class Located(NamedTuple, Generic[R]):
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


def require_valid(rows: Iterable[Located[R]], findings: Sequence[Finding]) -> tuple[R, ...]:
    """Return the rows without their locations; CatalogError if there are findings."""
    if findings:
        raise CatalogError(findings)
    return tuple([located.row for located in rows])


def read_table(folder: Traversable, name: str) -> Table:
    """Read a TOML file of the catalog; CatalogError if it is missing."""
    return Table(name, read_text(folder / name, name))


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


def read_rows(table: Table, array: str, model: type[R]) -> tuple[list[Located[R]], list[Finding]]:
    """Return the valid rows of ``[[array]]`` and the findings on all others."""
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
        except ValueError as error:  # ValidationError, without importing pydantic
            for field, message in _format_messages(error):
                findings.append(Finding(table.file, table.line_of(array, index, field), field, message))
    return rows, findings


def load_rows(table: Table, array: str, model: type[R]) -> tuple[R, ...]:
    """Read the rows of ``[[array]]``; CatalogError if one is invalid."""
    return require_valid(*read_rows(table, array, model))


def read_prices(
    file: Traversable, provider: str, sources: Mapping[str, str]
) -> tuple[list[Located[Offer]], list[Finding]]:
    """Return the offers of one provider's CSV file and the findings on its invalid lines."""
    name = f"prices/{file.name}"
    form = CsvForm(name, PRICE_COLUMNS, {"as_of": "price_as_of", "source": "price_source"}, sources)
    return read_csv(Offer, read_text(file, name), form, provider=provider)


class CsvForm(NamedTuple):
    """Form of a CSV file."""

    file: str  # name in findings
    columns: Sequence[str]  # the header
    fields: Mapping[str, str] = MappingProxyType({})  # fields of columns with another name
    # full text of a source by its key in the column `source`; None if the text itself stands there
    sources: Mapping[str, str] | None = None
    keys_of: str = "sources.toml"  # place of these keys, in findings
    derive: Callable[[Columns], Columns] = lambda columns: {}  # computes fields from the other columns


def read_csv(model: type[R], text: str, form: CsvForm, **fixed: str) -> tuple[list[Located[R]], list[Finding]]:
    """Return the rows of a CSV file and the findings on its invalid lines.

    Columns without a field are ignored; an empty cell of an optional field is None. Fields in `fixed` have one
    value in all rows.
    """
    lines, findings = _read_lines(text, form)
    if not lines:
        return [], findings
    optional, known = find_optional_fields(cast("Any", model)), {one.name for one in fields(model)}
    columns: dict[str, Sequence[Any]] = {name: [value] * len(lines) for name, value in fixed.items()}
    for column, cells in zip(form.columns, zip(*lines.values(), strict=True), strict=True):
        field = form.fields.get(column, column)
        if column == "source" and form.sources is not None:
            columns[field] = [form.sources[key] for key in cells]
        elif field in known:
            columns[field] = [cell or None for cell in cells] if field in optional and "" in cells else cells
    columns |= form.derive(columns)
    try:
        rows = model.read_columns(columns, len(lines))
        return list(map(Located, rows, repeat(form.file), lines)), findings
    except UNREAD:
        located, more = _read_one_by_one(model, columns, form, lines)
        return located, sorted(findings + more, key=lambda finding: finding.line)


def _read_lines(text: str, form: CsvForm) -> tuple[dict[int, list[str]], list[Finding]]:
    """Return the cells of the lines by number, and the findings on lines without a cell for each column."""
    reader = csv.reader(io.StringIO(text, newline=""))
    if next(reader, []) != [*form.columns]:
        return {}, [Finding(form.file, 1, "header", f"is not `{','.join(form.columns)}`")]
    lines, findings, expected, sources = {}, [], len(form.columns), form.sources
    source = form.columns.index("source") if sources is not None else 0
    for cells in reader:
        if len(cells) != expected:
            message = f"{len(cells)} cells where {expected} are expected"
            findings.append(Finding(form.file, reader.line_num, "columns", message))
        elif sources is not None and cells[source] not in sources:
            message = f"`{cells[source]}` is not a key of {form.keys_of}"
            findings.append(Finding(form.file, reader.line_num, "source", message))
        else:
            lines[reader.line_num] = cells
    return lines, findings


def _read_one_by_one(
    model: type[R], columns: Columns, form: CsvForm, lines: Iterable[int]
) -> tuple[list[Located[R]], list[Finding]]:
    """Return the valid rows, and the findings on all others."""
    names = {field: column for column, field in form.fields.items()}
    rows, findings = [], []
    for line, values in zip(lines, zip(*columns.values(), strict=True), strict=True):
        try:
            rows.append(Located(model.read(dict(zip(columns, values, strict=True))), form.file, line))
        except ValueError as error:  # ValidationError, without importing pydantic
            for field, message in _format_messages(error):
                findings.append(Finding(form.file, line, names.get(field, field), message))
    return rows, findings


def _format_messages(error: ValueError) -> list[tuple[str, str]]:
    """Return (field, error message) pairs of a validation error in plain words."""
    found = []
    for detail in cast("ValidationError", error).errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in detail["loc"]) or "row"
        given = "" if detail["type"] == "missing" else f" (got `{detail['input']}`)"
        message = {"missing": "is missing", "unexpected_keyword_argument": "is not a known field"}.get(
            detail["type"], detail["msg"].lower()
        )
        found.append((field, f"{message}{given}"))
    return found


def read_text(file: Traversable, name: str) -> str:
    """Read a text file of the catalog; CatalogError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CatalogError([Finding(name, 1, "file", f"cannot be read: {reason}")]) from error

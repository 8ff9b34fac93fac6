"""How results leave the program: a table on a terminal, TSV in a pipe, one JSON object on request.

Nothing is computed here. Standard output carries data alone. A reader that goes away is no fault.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Any, Literal

from ..frozen import Frozen
from .progress import status

__all__ = [
    "UNKNOWN", "Column", "JsonText", "compact_json", "emit_json", "emit_rows", "emit_text", "json_text",
    "tsv_text",
]  # fmt: skip

UNKNOWN = "–"  # what a table shows for None
ROWS_AT_ONCE = 64  # of a document: together some system calls' worth, and never the whole twice


class JsonText(str):
    """A row of a document that is JSON already."""

    __slots__ = ()


class Column(Frozen):
    """One column of a table.

    Args:
        key: Where the value is in a row; also the column's name in TSV.
        header: What a table on a terminal calls it.
        format: Value (never None) to text for the terminal; TSV always carries the full value.
        justify: Where the text stands in its cell on a terminal.
        terminal: False: too much for a terminal; TSV always has all columns.
    """

    key: str
    header: str
    format: Callable[[Any], str] | None = None
    justify: Literal["left", "right", "center"] = "left"
    terminal: bool = True


def emit_rows(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, title: str | None = None
) -> None:
    """Write rows to standard output: a table on a terminal, TSV with a header line anywhere else."""
    if sys.stdout.isatty():
        _write(lambda: _print_table(columns, rows, title=title))
    else:
        _write(lambda: sys.stdout.write(tsv_text(columns, rows)))


def emit_json(schema: str, payload: Mapping[str, Any]) -> None:
    """Write one JSON object that names its schema (``gpuplan.offers/1``) to standard output, row by row."""
    pieces = _json_pieces(schema, payload)
    _write(lambda: sys.stdout.writelines(_joined(pieces)))


def emit_text(text: str) -> None:
    """Write a page of text to standard output as it is."""
    _write(lambda: sys.stdout.write(text))


def json_text(schema: str, payload: Mapping[str, Any]) -> str:
    """Return a payload as JSON: money (Decimal) as text, dates as ISO 8601, unknown (None) as null.

    Example:
        >>> print(json_text("gpuplan.x/1", {"usd": Decimal("0.10"), "note": None}), end="")
        {
          "schema": "gpuplan.x/1",
          "usd": "0.10",
          "note": null
        }
    """
    return "".join(_json_pieces(schema, payload))


def _json_pieces(schema: str, payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document in pieces, a row of a list of objects each."""
    start = "{\n"
    for key, value in {"schema": schema, **payload}.items():
        yield f"{start}  {json.dumps(key)}: "
        yield from _member_pieces(value)
        start = ",\n"
    yield "\n}\n"


def _joined(pieces: Iterator[str]) -> Iterator[str]:
    """Yield many pieces as one: a write takes longer than a row."""
    while some := list(islice(pieces, ROWS_AT_ONCE)):
        yield "".join(some)


def tsv_text(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    r"""Return rows as tab-separated text at full precision, header first; unknown (None) is empty.

    Example:
        >>> tsv_text([Column(key="a", header="A"), Column(key="b", header="B")], [{"a": 0.1, "b": None}])
        'a\tb\n0.1\t\n'
    """
    keys = [column.key for column in columns]
    lines = ["\t".join(keys)]
    lines += [
        "\t".join(["" if cell is None else _tsv_cell(cell) for cell in map(row.get, keys)]) for row in rows
    ]
    return "\n".join(lines) + "\n"


def _member_pieces(value: object) -> Iterator[str]:
    """Yield a member of the document, indented; of a list of objects one a line, for diffs and speed."""
    if isinstance(value, Iterator) or (
        isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping)
    ):
        start = "[\n    "
        for row in value:
            yield start
            yield row if isinstance(row, JsonText) else compact_json(row)
            start = ",\n    "
        yield "[]" if start == "[\n    " else "\n  ]"
        return
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_json_value)
    yield text.replace("\n", "\n  ")


def compact_json(value: object) -> str:
    """Return a value as JSON on one line."""
    return _compact().encode(value)


@cache
def _compact() -> json.JSONEncoder:
    """Return the encoder of rows; made once, since there are thousands of them."""
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, default=_json_value)


def _json_value(value: object) -> Any:
    """Return what JSON has no type for in its contract form; TypeError on anything unforeseen."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _tsv_cell(value: object) -> str:
    """Return a known value as one TSV cell: no tabs, no line breaks."""
    if type(value) in (float, int):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else " ".join(str(value).split())


def _table_cell(column: Column, value: Any) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return UNKNOWN
    if column.format is not None:
        return column.format(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _print_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, title: str | None) -> None:
    """Print a table as wide as the terminal allows; rich honours NO_COLOR and COLUMNS by itself."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    shown = [column for column in columns if column.terminal]
    for column in shown:
        table.add_column(column.header, justify=column.justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_table_cell(column, row.get(column.key))) for column in shown))
    console = Console(file=sys.stdout, highlight=False)
    with status(f"laying out {table.row_count:,} rows"), console.capture() as laid_out:
        console.print(table)
    sys.stdout.write(laid_out.get())


def _write(emit: Callable[[], object]) -> None:
    """Run a writer and flush; when the reader has closed the pipe, send the rest nowhere, without a word."""
    try:
        emit()
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

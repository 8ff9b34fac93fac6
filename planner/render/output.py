"""Output of results: a table on a terminal, TSV in a pipe, one JSON object on request, and files.

Nothing is computed here. Standard output carries data only, and no control characters of what it shows. A reader
that closes the pipe early is not an error.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError, escape_controls
from ..files import write_atomically
from ..records import Frozen, to_plain
from .progress import status


def require_writable(path: Path | None) -> None:
    """Raise UsageError unless the file of `-o`, if there is one, can be written; called before the work."""
    import tempfile

    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"`-o {path}` is a folder", hint=f"give a file name: `-o {path / 'plan.json'}`")
    if not path.parent.is_dir():
        raise UsageError(f"`-o {path}`: there is no folder `{path.parent}`", hint="create it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"`-o {path}` cannot be written: {error.strerror}", hint="choose another file") from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; raise GpuplanError when it cannot be written, as on a full disk."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise GpuplanError(f"{path} cannot be written: {error.strerror}", hint=ROOM) from error


def write_document(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write a document that names its schema to a file, if one is given."""
    if path is not None:
        write_text(path, format_json(document["schema"], document))


ROOM = "free some space, or write to another place"
UNKNOWN = "–"  # shown for None in tables
GAP = 2  # between two columns of a table [characters]
ROWS_PER_WRITE = 64  # rows per write: few system calls, without holding the whole document twice


class Column(Frozen):
    """A column of a table."""

    key: str  # key of the value in a row; also the column's name in TSV
    header: str  # column header on a terminal
    # function from a value (never None) to terminal text; TSV always has the full value
    format: Callable[[Any], str] | None = None
    justify: Literal["left", "right"] = "left"  # alignment on a terminal
    terminal: bool = True  # whether a terminal shows the column; TSV always has all columns
    # order in which columns are left out of a table that is too wide, highest first; 0: never
    dispensable: int = 0


def make_columns(
    *tsv_only: str,
    format: Callable[[Any], str] | None = None,
    justify: Literal["left", "right"] = "left",
    dispensable: int = 0,
    **headers: str,
) -> tuple[Column, ...]:
    """Return columns of one form by the headers of their keys, and columns of TSV alone."""
    form: dict[str, Any] = {"format": format, "justify": justify, "dispensable": dispensable}
    shown = [Column(key=key, header=header, **form) for key, header in headers.items()]
    return (*shown, *(Column(key=key, header=key, terminal=False) for key in tsv_only))


make_numbers = partial(make_columns, justify="right")


def get_terminal_width() -> int:
    """Return the width of the terminal [characters]; 80 if it is unknown."""
    return shutil.get_terminal_size((80, 24)).columns


def emit_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, title: str | None = None) -> None:
    """Write rows to standard output: a table on a terminal, otherwise TSV with a header line, row by row."""
    if sys.stdout.isatty():
        _write(lambda: _print_table(columns, rows, title=title))
    else:
        emit_tsv([column.key for column in columns], rows)


def emit_tsv(keys: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to standard output as TSV with a header line, row by row."""
    _write(lambda: sys.stdout.writelines(_join_pieces(iter_tsv_lines(keys, rows))))


def emit_json(schema: str, payload: Mapping[str, Any]) -> None:
    """Write one JSON object with its schema (``gpuplan.offers/1``) to standard output, row by row."""
    _write(lambda: sys.stdout.writelines(_join_pieces(_iter_json_pieces(schema, payload))))


def emit_result(
    schema: str,
    payload: Mapping[str, Any],
    columns: Sequence[Column],
    rows: Iterable[Mapping[str, Any]],
    *,
    as_json: bool,
    title: str | None = None,
) -> None:
    """Write a payload as JSON, or its rows as a table or TSV."""
    emit_json(schema, payload) if as_json else emit_rows(columns, rows, title=title)


Row = dict[str, Any]
Screen = tuple[list[str], Sequence[Column], list[Row], list[str]]


class Answer(Frozen):
    """Answer of a comparison."""

    document: Row  # JSON object
    rows: str  # member of the document that a pipe gets as TSV
    tsv: Sequence[str]  # columns of that TSV
    # function that builds the lines above a terminal's table, its columns, its rows and the lines below
    screen: Callable[[], Screen]

    def emit(self, *, as_json: bool) -> None:
        """Write to standard output: JSON, a screen on a terminal, or TSV in a pipe."""
        if as_json:
            emit_json(self.document["schema"], self.document)
        elif sys.stdout.isatty():
            head, columns, rows, below = self.screen()
            emit_text(_wrap(head))
            emit_rows(columns, rows)
            emit_text("\n" + _wrap(line for line in below if line))
        else:
            emit_tsv(self.tsv, map(_flatten, self.document[self.rows]))


def _wrap(lines: Iterable[str]) -> str:
    """Wrap lines between words; an empty one is a gap."""
    width = get_terminal_width()
    wrapped = (textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) for text in lines)
    return "".join(f"{line}\n" for lines in wrapped for line in (lines or [""]))


def _flatten(row: Row) -> Row:
    """Return a row with its intervals as numbers: the central estimate, and the ends under names of their own."""
    flat = dict(row)
    for key, value in row.items():
        if isinstance(value, dict) and "mid" in value:
            flat |= {key: value["mid"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
    return flat


def emit_text(text: str) -> None:
    """Write text to standard output."""
    _write(lambda: sys.stdout.write(escape_controls(text)))


def format_json(schema: str, payload: Mapping[str, Any]) -> str:
    """Format a payload as JSON: Decimal as string, dates as ISO 8601, None as null."""
    return "".join(_iter_json_pieces(schema, payload))


def _iter_json_pieces(schema: str, payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document in pieces, one per row of a list of objects."""
    start = "{\n"
    for key, value in {"schema": schema, **payload}.items():
        yield f"{start}  {json.dumps(key)}: "
        yield from _iter_member_pieces(value)
        start = ",\n"
    yield "\n}\n"


def _join_pieces(pieces: Iterator[str]) -> Iterator[str]:
    """Join pieces in batches: a write takes longer than a row."""
    while some := list(islice(pieces, ROWS_PER_WRITE)):
        yield escape_controls("".join(some))


def iter_tsv_lines(keys: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield rows as tab-separated lines at full precision, header first; None is empty."""
    yield "\t".join(keys) + "\n"
    for row in rows:
        yield "\t".join(map(_format_tsv_cell, map(row.get, keys))) + "\n"


_ROW = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=to_plain
)


def _iter_member_pieces(value: object) -> Iterator[str]:
    """Yield a member of the document, indented; a list of objects has one object per line."""
    if isinstance(value, Iterator) or (
        isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping)
    ):
        start = "[\n    "
        for row in value:
            yield start
            yield _ROW.encode(row)
            start = ",\n    "
        yield "[]" if start == "[\n    " else "\n  ]"
        return
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=to_plain)
    yield text.replace("\n", "\n  ")


def _format_tsv_cell(value: object) -> str:
    """Format a value as a TSV cell without tabs and line breaks."""
    if value is None or type(value) in (float, int):
        return "" if value is None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else " ".join(str(value).split())


def _format_table_cell(column: Column, value: Any) -> str:
    """Format a value for a terminal."""
    if value is None:
        return UNKNOWN
    if column.format is not None:
        return escape_controls(column.format(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else escape_controls(str(value))


def _print_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, title: str | None) -> None:
    """Print a table over the width of the terminal; rich honors NO_COLOR and COLUMNS."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    console = Console(file=sys.stdout, highlight=False)
    shown = [column for column in columns if column.terminal]
    cells = [[_format_table_cell(column, row.get(column.key)) for column in shown] for row in rows]
    widths = fit_columns(shown, cells, width=console.width)
    for index, width in widths.items():
        table.add_column(shown[index].header, justify=shown[index].justify, overflow="fold", width=width)
    for line in cells:
        table.add_row(*(Text(clip_words(line[index], width)) for index, width in widths.items()))
    with status(f"laying out {table.row_count:,} rows"), console.capture() as laid_out:
        console.print(table)
    sys.stdout.write(laid_out.get())


def fit_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> dict[int, int]:
    """Return the widths of the columns that stay, by their position [characters].

    Dispensable columns are left out one by one until the others fit on one line a row. If that is not enough, the
    widest columns wrap between words, and last their longest words are shortened (`clip_words`).
    """
    from rich.cells import cell_len

    texts = [[column.header, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    kept = {index: max(map(cell_len, column)) for index, column in enumerate(texts)}
    spare = sorted((columns[index].dispensable, -index) for index in kept if columns[index].dispensable)
    while (excess := sum(kept.values()) + GAP * (len(kept) - 1) - width) > 0 and spare:
        del kept[-spare.pop()[1]]
    # Below its least width a column would break a word, or a number from its unit.
    least = {}
    for index in kept:
        whole = columns[index].justify == "right"
        words = texts[index] if whole else [word for text in texts[index] for word in text.split()]
        least[index] = max(map(cell_len, words), default=0)
    for _ in range(excess):  # off the column that can spare most; below the least widths, off the widest
        kept[max(kept, key=lambda one: (max(0, kept[one] - least[one]), kept[one]))] -= 1
    return kept


def clip_words(text: str, width: int) -> str:
    """Shorten words longer than a column in their middle, where names differ least."""
    return text if len(text) <= width else " ".join(clip(word, width) for word in text.split(" "))


def clip(word: str, width: int) -> str:
    """Shorten a text in its middle, where names differ least."""
    if len(word) <= width:
        return word
    head = (width - 1) * 2 // 3
    return f"{word[:head]}…{word[head + 1 - width :]}"


def _write(emit: Callable[[], object]) -> None:
    """Run a writer and flush; if the reader has closed the pipe, discard the rest silently.

    Raises:
        GpuplanError: Standard output cannot be written, as to a file on a full disk.
    """
    try:
        emit()
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        raise GpuplanError(f"standard output cannot be written: {error.strerror}", hint=ROOM) from error


def discard_output() -> None:
    """Discard what is still buffered for standard output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

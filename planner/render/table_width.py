"""Widths of a table's columns on a terminal: what does not fit is left out or wrapped between words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

GAP = 2  # between two columns [characters]


class SizedColumn(Protocol):
    """What the width of a column depends on besides its cells; see `output.Column`."""

    @property
    def header(self) -> str:
        """Column header."""

    @property
    def justify(self) -> str:
        """Alignment."""

    @property
    def dispensable(self) -> int:
        """Order in which columns are left out, highest first; 0: never."""


def fit_columns(
    columns: Sequence[SizedColumn], rows: Sequence[Sequence[str]], *, width: int
) -> list[int | None]:
    """Return the width of each column; None for one that is left out [characters].

    Dispensable columns are left out one by one until the others fit on one line a row. If that is not enough, the
    widest columns wrap between words, and last their longest words are shortened (`clip_words`).

    Args:
        columns: Columns of the table.
        rows: Text of the cells, in the order of the columns.
        width: Width of the terminal [characters].
    """
    from rich.cells import cell_len

    texts = [[column.header, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    natural = [max(map(cell_len, column)) for column in texts]
    kept = list(range(len(columns)))
    while _total(natural, kept) > width:
        spare = [index for index in kept if columns[index].dispensable]
        if not spare:
            break
        kept.remove(max(spare, key=lambda index: columns[index].dispensable))
    least = [_find_least(column, text) for column, text in zip(columns, texts, strict=True)]
    fitted = _shrink({index: natural[index] for index in kept}, least, excess=_total(natural, kept) - width)
    return [fitted.get(index) for index in range(len(columns))]


def _find_least(column: SizedColumn, texts: Sequence[str]) -> int:
    """Return the width below which a column would break a word, or a number from its unit [characters]."""
    from rich.cells import cell_len

    words = texts if column.justify == "right" else [word for text in texts for word in text.split()]
    return max((cell_len(word) for word in words), default=0)


def clip_words(text: str, width: int) -> str:
    """Shorten words longer than a column in their middle, where names differ least.

    Example:
        >>> clip_words("aws northamerica-northeast1", 15)
        'aws northamer…east1'
    """
    if len(text) <= width:
        return text
    return " ".join(_clip(word, width) for word in text.split(" "))


def _clip(word: str, width: int) -> str:
    if len(word) <= width:
        return word
    head = (width - 1) * 2 // 3
    return f"{word[:head]}…{word[head + 1 - width :]}"


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    """Return the width of a table [characters]."""
    return sum(widths[index] for index in kept) + GAP * (len(kept) - 1)


def _shrink(widths: dict[int, int], least: Sequence[int], *, excess: int) -> dict[int, int]:
    """Take characters off the columns that can spare most; below their longest words, off the widest."""
    for _ in range(excess):
        index = max(widths, key=lambda one: (max(0, widths[one] - least[one]), widths[one]))
        widths[index] -= 1
    return widths

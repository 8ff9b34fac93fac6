"""Notebooks as scripts: the code cells in order, without magics and shell lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

NOTEBOOK = ".ipynb"
# A magic, a shell line or a question, with what it is assigned to.
_MAGIC = re.compile(r"^(\s*)(?:([\w.,\s]+?)=\s*)?(?:[%!]|\?+\w|[\w.]+\?+$)")
# Cell magics that run the rest of their cell as Python.
_OF_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%skip_if_done")


def read_source(path: Path) -> str:
    """Return the Python text of a script or notebook; ValueError for a notebook that is none."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text if path.suffix != NOTEBOOK else "\n".join(_read_cells(text))


def find_cell(path: Path, line: int) -> tuple[int, int]:
    """Return the number of a line's code cell in a notebook, from 1, and the line in it; (0, line) in a script."""
    if path.suffix != NOTEBOOK:
        return 0, line
    for number, cell in enumerate(_read_cells(path.read_text(encoding="utf-8", errors="replace")), start=1):
        lines = cell.count("\n") + 1
        if line <= lines:
            return number, line
        line -= lines
    return 0, line


@lru_cache(maxsize=2)
def _read_cells(text: str) -> tuple[str, ...]:
    """Return the code cells of a notebook as Python."""
    try:
        cells = json.loads(text)["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (KeyError, TypeError) as error:
        raise ValueError("no notebook of format 4") from error
    return tuple("\n".join(_leave_out_magics(code)) for code in codes)


def _leave_out_magics(code: str) -> Iterator[str]:
    """Yield the lines of a cell, each magic replaced by `pass`."""
    lines = code.split("\n")
    is_python = not code.lstrip().startswith("%%") or code.lstrip().startswith(_OF_PYTHON)
    if is_python and _parses(code):
        yield from lines
        return
    continues = False
    for line in lines:
        found = _MAGIC.match(line)
        if is_python and not found and not continues:
            yield line
        else:
            target = found[2] if found and is_python else None
            yield f"{found[1]}{target}= []" if found and target else f"{found[1] if found else ''}pass"
        continues = (continues or bool(found)) and line.endswith("\\")


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True

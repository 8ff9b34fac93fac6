"""Notebooks as scripts: what is left out, and where an error is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpuplan.workload.errors import name_place
from gpuplan.workload.script_text import find_cell, read_source

CELLS = [
    ("markdown", "# Title\nimport nothing"),
    (
        "code",
        "%matplotlib inline\n!pip install -q keras \\\n  numpy\nfiles = !ls\nx = 5 % 3\nif x:\n    %time x = 1",
    ),
    ("code", "%%bash\nls -la"),
    ("code", "%%time\ny = 2\ny?"),
    ("code", "text = '''\n!not a shell line\n'''"),
]


def write(folder: Path, cells: list[tuple[str, str]] = CELLS) -> Path:
    """Write a notebook with these cells."""
    document = {
        "cells": [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells],
        "nbformat": 4,
    }
    path = folder / "train.ipynb"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_magics_and_shell_lines_are_left_out(tmp_path: Path) -> None:
    """Each becomes `pass`, so that lines keep their numbers; what is assigned is empty; text stays as it is."""
    source = read_source(write(tmp_path)).split("\n")

    assert source == [
        *("pass", "pass", "pass", "files = []", "x = 5 % 3", "if x:", "    pass"),
        *("pass", "pass"),
        *("pass", "y = 2", "pass"),
        *("text = '''", "!not a shell line", "'''"),
    ]


@pytest.mark.parametrize(("line", "place"), [(1, (1, 1)), (7, (1, 7)), (8, (2, 1)), (11, (3, 2)), (15, (4, 3))])
def test_a_line_is_named_by_its_cell(tmp_path: Path, line: int, place: tuple[int, int]) -> None:
    """The code cells have 7, 2, 3 and 3 lines."""
    path = write(tmp_path)

    assert find_cell(path, line) == place
    assert name_place(str(path), line) == f"train.ipynb, cell {place[0]}, line {place[1]}"
    assert name_place("train.py", line) == f"train.py, line {line}"

"""More than 200 generated malformed lines: one clear line, the right exit code, no stdout, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import BadInput, iter_cases, write_damaged_files

CASES = tuple(iter_cases())
IN_CHILDREN = CASES[:: len(CASES) // 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, saved: str) -> Path:
    """A folder with one good file and many damaged ones."""
    made = tmp_path_factory.mktemp("bad")
    write_damaged_files(made, saved)
    return made


def fill(case: BadInput, folder: Path) -> list[str]:
    """Return the command line with the paths of its files."""
    return [re.sub(r"^\{(.+)\}$", lambda m: str(folder / m[1]), part) for part in case.line]


def check(case: BadInput, code: int, out: str, err: str) -> None:
    """Hold what every refusal promises."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code in case.codes, (code, err)
    assert "Traceback" not in err
    if case.line:
        assert len(lines) == 1, err
        assert case.says.lower() in err.lower()
        assert len(lines[0]) < 600
    if code == 2:
        assert out == ""


def test_there_are_two_hundred() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(case.line)[:60].encode("ascii", "replace").decode()
)
def test_a_bad_input_is_refused_in_one_line(
    case: BadInput, folder: Path, gpuplan: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = gpuplan(*fill(case, folder))

    check(case, done.code, done.out, done.err)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", IN_CHILDREN, ids=lambda case: " ".join(case.line)[:40])
def test_a_process_of_its_own_says_the_same(case: BadInput, folder: Path) -> None:
    line = fill(case, folder)
    done = subprocess.run(
        [sys.executable, "-m", "gpuplan", *line],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ,
        check=False,
    )

    check(case, done.returncode, done.stdout, done.stderr)

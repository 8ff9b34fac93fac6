"""The mutation run, on a package of one module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROJECT = {
    "pyproject.toml": '[tool.setuptools]\npackage-dir = { "gpuplan" = "planner" }\n'
    '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = "--import-mode=importlib"\n',
    "planner/__init__.py": "",
    "planner/room/__init__.py": "",
    "planner/room/area.py": "def compute_area(width, height):\n    return width * height\n\n\n"
    "def double(width):\n    return 2 * width\n",
    "tests/test_area.py": "from gpuplan.room.area import compute_area, double\n\n\n"
    "def test_area():\n    assert compute_area(3, 5) == 15\n\n\n"
    "def test_double():\n    assert double(3) > 5\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working tree with a function that is tested well, and one that is not."""
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_killed_and_surviving_mutants_are_told_apart(project: Path) -> None:
    """By hand: `3 / 5` and `2 / 3` are noticed, `3 * 3` is above 5, too; the working tree stays as it was."""
    before = {path: path.read_bytes() for path in project.rglob("*.py")}
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(BENCHMARKS)!r})
        from pathlib import Path
        import mutation
        sys.exit(mutation.main(
            ["--rooms", "room", "--mutants", "9", "--tests", "tests", "--map", "map.json", "--at-least", "90"],
            root=Path.cwd(),
        ))"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stderr
    assert "planner/room/area.py:6\n  - return 2 * width\n  + return 3 * width\n" in done.stdout
    assert "area.py:2" not in done.stdout
    assert "2 killed, 1 survived, 0 equivalent: 66.7 %" in done.stdout
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before

"""The mutation run, on a package of one module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutants import find_mutants

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROJECT = {
    "pyproject.toml": '[tool.setuptools]\npackage-dir = { "gpuplan" = "planner" }\n'
    '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = "--import-mode=importlib"\n',
    "planner/__init__.py": "",
    "planner/room/__init__.py": "",
    "planner/room/area.py": "def compute_area(width, height):\n    return width * height\n\n\n"
    "def double(width):\n    factor = 2\n    return factor * width\n",
    "tests/test_area.py": "from gpuplan.room.area import compute_area, double\n\n\n"
    "def test_area():\n    assert compute_area(3, 5) == 15\n\n\n"
    "def test_double():\n    assert double(3) > 5\n",
}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("z = x + y", {"z = x - y"}),
        ("z = (x ** y) // w", {"z = (x * y) // w", "z = (x ** y) * w"}),
        ("z += x", {"z -= x"}),
        ("z = x < y", {"z = x <= y", "z = x >= y"}),
        ("z = x is not None", {"z = x is None"}),
        ("z = x not in y", {"z = x in y"}),
        ("z = x and y", {"z = x or y"}),
        ("z = not (x)", {"z = (x)"}),
        ("z = -x", {"z = x"}),
        ("z = [1, 0.5, True]", {"z = [2, 0.5, True]", "z = [1, 1.0, True]", "z = [1, 0.5, False]"}),
        ("z = math.ceil(max(x, y))", {"z = math.floor(max(x, y))", "z = math.ceil(min(x, y))"}),
        ("z = x if y else w", {"z = x if not (y) else w"}),
        ('é = "é" if 7 else x', {'é = "é" if 8 else x'}),
        ('z = "a" + x', set()),
        ('z = f"{x + 1}"', set()),
        ("z: Literal[1] = x", set()),
        ("z = zip(x, y, strict=True)", set()),
        ("raise ValueError(1 + x)", set()),
    ],
)
def test_mutants_of_a_line_by_hand(line: str, changed: set[str]) -> None:
    """All of them, and where they stand."""
    source = f"def f(x):\n    {line}\n"
    found = find_mutants("a.py", source)

    assert {one.lines(source) for one in found} == {(line, after) for after in changed}
    assert {(one.line, one.scope) for one in found} <= {(2, "f")}


def test_the_scope_of_a_mutant_is_its_outermost_function() -> None:
    """As Python names functions, without what lies within them; `<module>` for what runs at import."""
    source = "A = 1\nclass B:\n    c = 2\n    def d(self):\n        def e():\n            return 3\n"

    assert [(one.line, one.scope) for one in find_mutants("a.py", source)] == [
        (1, "<module>"),
        (3, "<module>"),
        (6, "B.d"),
    ]


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
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert "planner/room/area.py:6\n  - factor = 2\n  + factor = 3\n" in done.stdout
    assert "area.py:2" not in done.stdout
    assert "2 killed, 1 survived, 0 equivalent: 66.7 %" in done.stdout
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before

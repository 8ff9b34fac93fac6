"""The commands and the code that README.md and the documentation show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import snippets

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "recipes.md", "catalog.md")
QUICK = ("estimate examples/mnist_cnn.py", "offers", "accelerators", "accuracy", "catalog")


def test_every_command_line_can_be_read() -> None:
    """By the program's own parser: known commands, known flags, values of the right kind."""
    assert sum(1 for page in snippets.pages() for _ in snippets.snippets(page)) > 50
    assert snippets.read_all(snippets.pages()) == []


def test_a_command_line_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A flag that was renamed, in a block of shell; prose and other blocks are not read."""
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\ngpuplan estimate train.py \\\n  --acelerator T4  # why\n```\n```text\ngpuplan nonsense\n```\n"
    )

    (wrong,) = snippets.read_all([page])

    assert "--acelerator" in wrong
    assert "page.md" in wrong


def test_quick_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with stand-ins; `docs/_tools/snippets.py --run` runs those of every page, for minutes."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")  # `catalog check`: no row is read later
    folder = tmp_path / "work"
    folder.mkdir()
    snippets.prepare(folder)
    chosen = [page for page in snippets.pages() if page.name in PAGES]
    done = list(snippets.run_all(chosen, folder, only=QUICK))

    assert len(done) > 8
    assert [f"{snippet.text}: {said}" for snippet, code, said in done if code not in snippets.GOOD] == []


@pytest.mark.slow
def test_python_of_the_page_on_python_runs(tmp_path: Path) -> None:
    """Its blocks in their order, as they stand, in one process; those marked `py` train and are not run."""
    pytest.importorskip("pandas")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert len(blocks) == 5
    assert "Interval(" in done.stdout
    assert "unknown accelerator `A1000`" in done.stdout


@pytest.mark.slow
def test_the_search_that_counts_dollars_runs(tmp_path: Path) -> None:
    """The recipe as it stands: three trials, each with a score of loss and dollars, the least first."""
    pytest.importorskip("keras_tuner")
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "keras_tuner" in one
    )
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    scores = [float(score) for score in re.findall(r"^Score: (.+)$", done.stdout, re.MULTILINE)]

    assert done.returncode == 0, done.stderr
    assert len(scores) == 3
    assert scores == sorted(scores)

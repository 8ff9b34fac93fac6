"""docs/recipes.md: each question's command is one that answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import snippets

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins for a reader's files, and settings of its own."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")  # `catalog check`: no row is read later
    for kind in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"GPUPLAN_{kind}_DIR", str(tmp_path / kind.lower()))
    work = tmp_path / "work"
    work.mkdir()
    snippets.prepare(work)
    return work


def test_the_table_asks_and_answers() -> None:
    """Thirty questions at least, each with a command."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.endswith("` |")]
    questions = [line for line in rows if "? | `gpuplan " in line]

    assert len(questions) >= 30
    assert len(list(snippets.snippets(PAGE))) >= len(questions)


@pytest.mark.slow
def test_every_question_is_answered(folder: Path) -> None:
    """Each ends with 0, or with 3 where the answer is no; what needs an account or a network is read only."""
    done = [(snippet.text, code, said) for snippet, code, said in snippets.run_all([PAGE], folder)]

    assert len(done) >= 30
    assert [f"{text}: {said}" for text, code, said in done if code not in snippets.GOOD] == []

"""docs/troubleshooting.md: every message that it quotes is one that the program has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^(?:error|hint): (.+)$", PAGE, re.MULTILINE)
WARNINGS = re.findall(r"^\| `([^`–]+)`[^|]* \|", PAGE, re.MULTILINE)


def _texts(module: Path) -> set[str]:
    """Return the string constants of a module; `…` stands for what an f-string puts in."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "…" for one in node.values]
            found.add("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@pytest.fixture(scope="module")
def messages() -> set[str]:
    """Every text of the package."""
    return {text for module in (ROOT / "planner").rglob("*.py") for text in _texts(module)}


def test_the_page_quotes_messages() -> None:
    """Thirty at least."""
    assert len(QUOTED) >= 30


@pytest.mark.parametrize("quoted", [*QUOTED, *WARNINGS])
def test_a_quoted_message_is_in_the_code(quoted: str, messages: set[str]) -> None:
    """Between its ends: a `…` there may stand for a name, or for text that is built elsewhere."""
    fixed = quoted.strip("…").strip()

    assert any(fixed in text for text in messages), quoted


def test_a_message_that_does_not_exist_is_told(messages: set[str]) -> None:
    """The test above can fail."""
    assert not any("ended without calling fits()" in text for text in messages)

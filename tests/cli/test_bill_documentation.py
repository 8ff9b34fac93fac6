"""docs/bill.md: every command in it runs, and every assumption that it names exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuplan.cli.estimate_commands import OWN
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import parse_overrides

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bill.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
]
Run = Callable[..., "object"]


def test_the_page_has_commands() -> None:
    """Thirteen at least, all of them this program's."""
    assert len(COMMANDS) >= 13
    assert {words[0] for words in COMMANDS} == {"gpuplan"}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[1:3] + words[-2:]))
def test_commands_of_the_page(
    gpuplan: Run, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a clone, each ends well and prints something; no client of Colab or Kaggle is there."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("GPUPLAN_ENDPOINT_KAGGLE_QUOTA", "no-such-program")
    monkeypatch.setenv("GPUPLAN_ENDPOINT_COLAB_USAGE", "no-such-program")
    done = gpuplan(*words[1:])

    assert done.code == 0, done.err
    assert done.out


def test_assumptions_of_the_page_exist() -> None:
    """Every key of `--assume` in the documentation is valid."""
    pairs = re.findall(r"--assume (([a-z0-9_]+)=[0-9.]+)", PAGE)

    known = parse_overrides(
        (text for text, key in pairs if key not in ("notebook_hours_a_day", *OWN)), load_catalog().costs
    )
    assert len(known) > 10


def test_links_of_the_page_lead_somewhere() -> None:
    """Files that the page points to are there."""
    targets = re.findall(r"\]\(([^)#]+)", PAGE)
    assert targets
    for target in targets:
        assert (ROOT / "docs" / target).exists(), target

"""Help of every command, and shell completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from gpuplan.cli.app import COMMANDS, app
from gpuplan.plan.estimate_request import PANELS


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command that does something."""
    children = getattr(command, "commands", None)
    if not children:
        yield path
    for name, child in (children or {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize("path", sorted(commands(typer.main.get_command(app))), ids=" ".join)
def test_every_help_has_two_examples_within_100_columns(
    gpuplan: Callable[..., Any], path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two example commands besides the usage line, and no line wider than a page."""
    monkeypatch.setenv("COLUMNS", "100")
    done = gpuplan(*path, "--help")
    examples = re.findall(rf"gpuplan {' '.join(path)}\b", done.out)

    assert done.code == 0
    assert len(examples) - done.out.count(f"Usage: gpuplan {' '.join(path)}") >= 2
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize("width", [80, 100])
def test_the_commands_are_in_groups_one_a_line(
    gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Every command once, with what it does, whole on a line; no module of a command is loaded for it."""
    monkeypatch.setenv("COLUMNS", str(width))
    page = gpuplan("--help").out
    groups = re.findall(r"^(\w+):$", page, re.MULTILINE)
    lines = page[page.index("\nEstimate:") :].splitlines()
    listed = [found.group(1) for line in lines if (found := re.match(r"  (\w+) +[A-Z].*\.\)?$", line))]

    assert groups == ["Options", "Estimate", "Launch", "Measure", "Data", "Installation"]
    assert listed == list(COMMANDS)
    assert max(map(len, lines)) <= width


def test_flags_of_an_estimate_are_in_panels(gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten usual ones first; each flag once."""
    monkeypatch.setenv("COLUMNS", "80")
    page = gpuplan("estimate", "--help").out
    panels = dict(re.findall(r"^([A-Z][\w ]+):\n((?:  .*\n)+)", page, re.MULTILINE))
    flags = {name: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE) for name, text in panels.items()}
    every = [flag for names in flags.values() for flag in names]

    assert list(panels) == ["Arguments", *PANELS]
    assert flags["Usual options"] == [
        "--batch-size", "--samples", "--epochs", "--precision", "--accelerator", "--provider", "--own",
        "--deadline", "--budget", "--output",
    ]  # fmt: skip
    assert flags["Several devices"] == ["--hosts", "--scaling", "--shard"]
    assert len(every) == len(set(every)) >= 40


def test_the_commands_of_a_group_are_not_cut(gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All six of `catalog`, each with its whole sentence."""
    monkeypatch.setenv("COLUMNS", "80")
    page = gpuplan("catalog", "--help").out
    below = page.partition("Commands:\n")[2]

    assert re.findall(r"^  (\w+) ", below, re.MULTILINE) == ["check", "refresh", "diff", "age", "path"]
    assert "..." not in below


def test_few_flags_need_no_panels(gpuplan: Callable[..., Any]) -> None:
    """One list of options, also where they are declared with a panel."""
    page = gpuplan("offers", "--help").out

    assert re.findall(r"^([A-Z]\w+):$", page, re.MULTILINE) == ["Options"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpuplan estimate m.py --accelerator A100", ["A100-40GB", "A100-80GB"]),
        ("gpuplan estimate m.py --provider k", ["kaggle"]),
        ("gpuplan offers --region us-east-", ["us-east-1", "us-east-2"]),
    ],
)
def test_the_shell_offers_names_of_the_catalog(line: str, offered: list[str]) -> None:
    """A real process, asked as bash asks."""
    environment = {
        **os.environ,
        "_GPUPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "gpuplan"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert set(offered) <= set(done.stdout.split())
    assert all(name.startswith(line.rpartition(" ")[2]) for name in done.stdout.split())

"""Removed flags: each is gone and says what can be typed instead; and the number of flags that stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import parse
from gpuplan.cli.app import app
from gpuplan.cli.parse_errors import find_replacement, map_removed
from gpuplan.settings import Settings, load_settings

Run = Callable[..., Any]
REMOVED = map_removed()
MOST_SLOTS = 170
OPTIONS = sorted(key for key in REMOVED if key[0] and key[1].startswith("--"))
NEEDED = {  # what a command requires besides the flag
    "estimate": "ResNet50", "breakeven": "ResNet50", "sweep": "ResNet50", "profile": "ResNet50",
    "launch": "plan.json", "export": "plan.json --to ray", "rig": "--accelerator T4 --price 900",
}  # fmt: skip
NOWHERE = Path("/nonexistent/gpuplan.toml")


def iter_commands(node: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, with their words."""
    for name, below in getattr(node, "commands", {}).items():
        if hasattr(below, "commands"):
            yield from iter_commands(below, (*words, name))
        else:
            yield " ".join((*words, name)), below


def list_flags() -> list[tuple[str, str]]:
    """Return command and flag of each slot; a positional argument is none."""
    found = [
        (name, max(one.opts, key=len))
        for name, command in iter_commands(typer.main.get_command(app))
        for one in command.params
        if one.param_type_name == "option"
    ]
    assert found
    return found


def test_flags_stay_few() -> None:
    """The sum over all commands of their flags."""
    assert len(list_flags()) <= MOST_SLOTS


@pytest.mark.parametrize(("command", "flag"), OPTIONS)
def test_a_removed_flag_says_what_to_type(gpuplan: Run, command: str, flag: str) -> None:
    """The flag is unknown to the command; exit code 2, and the hint of the list."""
    done = gpuplan(*command.split(), *NEEDED.get(command, "").split(), flag)

    assert flag not in dict(_by_command())[command]
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"hint: {REMOVED[command, flag]}"


@pytest.mark.parametrize(("command", "flag"), OPTIONS)
def test_the_replacement_can_be_typed(command: str, flag: str, tmp_path: Path) -> None:
    """In backquotes: a command line, flags of the same command, a variable, or a line of settings."""
    quoted = re.findall("`([^`]+)`", REMOVED[command, flag])
    for text in quoted:
        require_valid(text, command, tmp_path)
    assert quoted or REMOVED[command, flag].startswith(("compile ", "leave it out", "change "))


def require_valid(text: str, command: str, folder: Path) -> None:
    """Raise unless the program takes a text from a hint."""
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", text)]
    if words[0] == "gpuplan":
        parse([re.sub("^N$", "1", word) for word in words[1:]])
    elif words[0].startswith("--"):
        words = [re.sub("^N$", "1", word) for word in words]
        parse([*command.split(), *NEEDED.get(command, "").split(), *words])
    elif words[0] == "python":
        assert words[1:3] == ["-m", "lab"]
    elif words[0].startswith("GPUPLAN_"):
        name, _, value = text.partition("=")
        read = load_settings(environ={name: value}, folder=folder, user_file=NOWHERE)
        assert read.origins[name.removeprefix("GPUPLAN_").lower()] == name
    else:
        entry = tomllib.loads(text) if "=" in text else {text: None}
        assert entry.keys() <= {one.name for one in fields(Settings)} | {"vendor"}


def _by_command() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for command, flag in list_flags():
        found.setdefault(command, []).append(flag)
    return found


def test_what_follows_two_hyphens_is_the_scripts() -> None:
    """A script may have a flag that gpuplan had."""
    assert find_replacement(["estimate", "train.py", "--", "--by", "3"]) is None
    assert find_replacement(["catalog", "diff", "--provider=aws"]) == REMOVED["catalog diff", "--provider"]

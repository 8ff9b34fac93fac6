"""Spellings that are no words of this version, each with the word for it: the table `spellings.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any


@cache
def read_spellings() -> dict[str, Any]:
    """Read the table."""
    import tomllib

    return tomllib.loads(files("gpuplan.cli").joinpath("spellings.toml").read_text(encoding="utf-8"))


@cache
def map_removed() -> dict[tuple[str, str], str]:
    """Return hints by command, "" for all commands, and the removed option, value or command."""
    rows = read_spellings()["removed"]["rows"]
    return {(command, option): hint for option, commands, hint in rows for command in commands.split(", ")}


def find_replacement(arguments: Sequence[str]) -> str | None:
    """Return the hint for the first removed spelling of a command line; None without one.

    Args:
        arguments: Arguments without the program name; those after `--` belong to the user's script.
    """
    typed = list(takewhile(lambda word: word != "--", arguments))
    words = [part for word in typed for part in word.split("=", 1)]
    names = [one for one in typed if not one.startswith("-")]
    places = (" ".join(names[:1]), " ".join(names[:2]), "")  # the command, its group and command, all commands
    keys = ((place, word) for word in words for place in places)
    return next((map_removed()[key] for key in keys if key in map_removed()), None)

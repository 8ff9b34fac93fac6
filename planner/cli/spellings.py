"""Spellings that are no words of this version, each with the word for it: the table `spellings.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    keys = (key for word in words for key in _iter_keys(typed, word))
    return next((map_removed()[key] for key in keys if key in map_removed()), None)


def _iter_keys(typed: Sequence[str], word: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a word: those of the command, of its group and command, and of all commands."""
    names = [one for one in typed if not one.startswith("-")]
    for count in (1, 2):
        yield " ".join(names[:count]), word
    yield "", word

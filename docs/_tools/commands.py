"""Every command of gpuplan with its help, as the program itself prints it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from gpuplan.cli.app import app, run

WIDTH = 88
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: what is typed, and what `--help` says."""

    words: tuple[str, ...]  # without `gpuplan`
    summary: str
    help: str

    @property
    def name(self) -> str:
        """Command line as typed."""
        return " ".join(("gpuplan", *self.words))


@cache
def commands() -> tuple[Command, ...]:
    """Return all commands that do something, in the order of the help; groups are gone through."""
    return tuple(_command(words, one) for words, one in _walk(_tree(), ()))


def names() -> list[tuple[str, ...]]:
    """Return the command line of each command, without `gpuplan`."""
    return [words for words, _ in _walk(_tree(), ())]


@cache
def flags() -> dict[str, frozenset[str]]:
    """Return the flags of each command by its words without `gpuplan`; those of the program itself by ""."""
    found = {" ".join(words): _flags(command) for words, command in _walk(_tree(), ())}
    if (ROOT / "lab").is_dir():
        lab = typer.main.get_command(import_module("lab.__main__").app)
        found |= {" ".join(("lab", *words)): _flags(command) for words, command in _walk(lab, ())}
    return found | {"": _flags(_tree())}


def _flags(command: Any) -> frozenset[str]:
    options = (flag for one in command.params for flag in (*one.opts, *one.secondary_opts))
    return frozenset(flag for flag in options if flag.startswith("--")) | {"--help"}


@cache
def _tree() -> Any:
    return typer.main.get_command(app)


def parse(words: list[str]) -> None:
    """Read a command line as the program would, and do nothing; raises what the program would tell."""
    command = _tree()
    context = command.make_context("gpuplan", ["--debug", words[0]])  # the group's own flags are the first
    rest = words
    while hasattr(command, "commands"):
        _, command, rest = command.resolve_command(context, rest)
        if hasattr(command, "commands"):
            context = command.make_context(rest[0], list(rest[:1]), parent=context)
    command.make_context(words[0], list(rest), parent=context)


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if inner.hidden:
            continue
        if hasattr(inner, "commands"):
            yield from _walk(inner, (*words, name))
        else:
            yield (*words, name), inner


def _command(words: tuple[str, ...], command: Any) -> Command:
    return Command(words=words, summary=command.get_short_help_str(200), help=help_text(*words))


def help_text(*words: str) -> str:
    """Return the output of `gpuplan WORDS --help` on a terminal of fixed width."""
    printed = io.StringIO()
    with _terminal(), contextlib.redirect_stdout(printed):
        code = run([*words, "--help"])
    if code != 0:
        raise RuntimeError(f"`gpuplan {' '.join(words)} --help` ended with {code}")
    return printed.getvalue().strip("\n")


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Return the fixed width of the page, regardless of the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before

"""Spellings that earlier versions accepted, each with what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

# (command, or "" for all commands; the removed option, value or command) -> the hint of the error.
REMOVED: dict[tuple[str, str], str] = {
    ("", "--live"): "run `gpuplan catalog refresh` before the command",
    ("accuracy", "--recorded"): "leave it out: `gpuplan accuracy` prints the record",
    **{
        ("accuracy", flag): f"`python -m lab accuracy {flag}` in a clone computes it"
        for flag in ("--from", "--memory", "--laws", "--check", "--markdown", "--output", "-o")
    },
    ("calibrate", "calibrate"): (
        "`python -m lab calibrate` in a clone rebuilds the packaged files; for your own chip,"
        " `gpuplan profile MODEL -o FILE` and then `gpuplan estimate FILE`"
    ),
}


def find_replacement(arguments: Sequence[str]) -> str | None:
    """Return the hint for the first removed spelling of a command line; None without one.

    Args:
        arguments: Arguments without the program name; those after `--` belong to the user's script.
    """
    command = next((word for word in arguments if not word.startswith("-")), "")
    words = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", arguments)]
    keys = (key for word in words for key in ((command, word), ("", word)))
    return next((REMOVED[key] for key in keys if key in REMOVED), None)

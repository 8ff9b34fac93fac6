"""Spellings that earlier versions accepted, each with what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_ON_A_MACHINE = (
    "`gpuplan launch plan.json --dry-run` shows the same machine, and without `--dry-run` starts it"
)
# (command, or "" for all commands; the removed option, value or command) -> the hint of the error.
REMOVED: dict[tuple[str, str], str] = {
    ("profile", "--compile"): "run `gpuplan estimate MODEL --compile --accelerator NAME`",
    ("profile", "--accelerator"): "run `gpuplan estimate MODEL --accelerator NAME`",
    ("export", "cloud-init"): _ON_A_MACHINE,
    ("export", "terraform"): _ON_A_MACHINE,
    (
        "",
        "--live",
    ): "`gpuplan catalog refresh` reads prices, `--assume notebook_hours_a_week=20` gives your weekly hours",
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
    before_script = takewhile(lambda word: word != "--", arguments)
    words = [part for word in before_script for part in word.split("=", 1)]
    keys = (key for word in words for key in ((command, word), ("", word)))
    return next((REMOVED[key] for key in keys if key in REMOVED), None)

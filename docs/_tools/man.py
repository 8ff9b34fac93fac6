"""The manual page, from `--help` of every command: python docs/_tools/man.py > docs/gpuplan.1"""

from __future__ import annotations

import sys

from commands import Command, commands, help_text
from gpuplan import __version__

EXIT_CODES = (
    ("0", "done"), ("1", "failed"), ("2", "wrong usage"),
    ("3", "the answer is no: nothing fits, over budget or past the deadline"),
    ("4", "credentials are missing"), ("130", "interrupted"),
)  # fmt: skip
ENVIRONMENT = (
    ("GPUPLAN_CACHE_DIR", "folder of traced workloads"),
    ("GPUPLAN_DATA_DIR", "folder of refreshed prices and measured runs"),
    ("GPUPLAN_CATALOG_DIR", "a catalog of your own"),
    ("GPUPLAN_STATE_DIR", "folder of launched runs"),
    ("GPUPLAN_PROVIDERS, GPUPLAN_REGIONS", "whose offers to look at, separated by commas"),
    ("GPUPLAN_SCRIPT_TIMEOUT", "longest time of a script: 90s, 30m; 10m without it"),
    ("KERAS_BACKEND", "jax, tensorflow or torch: what a script is run with, and what a profile measures"),
    ("NO_COLOR", "no colours"),
)


def page() -> str:
    """Return the page in the language of man(7)."""
    intro, _, _ = help_text().partition("Options:")
    description = " ".join(intro.split()[5:])  # after "Usage: gpuplan [OPTIONS] COMMAND [ARGS]..."
    parts = [
        f'.TH GPUPLAN 1 "" "gpuplan {__version__}" "User Commands"',
        ".SH NAME",
        r"gpuplan \- how long a Keras model trains, and what it costs, wherever it can be rented",
        ".SH SYNOPSIS",
        ".B gpuplan",
        r"[\-\-version] [\-\-debug] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        _escaped(description),
        ".SH COMMANDS",
        *(_section(command) for command in commands()),
        ".SH EXIT STATUS",
        *_terms(EXIT_CODES),
        ".SH ENVIRONMENT",
        *_terms(ENVIRONMENT),
        ".SH SEE ALSO",
        "Accuracy, prices, launching: the documentation that comes with the project.",
    ]
    return "\n".join(parts) + "\n"


def _section(command: Command) -> str:
    return "\n".join([f".SS {_escaped(command.name)}", ".nf", _escaped(command.help), ".fi"])


def _terms(terms: tuple[tuple[str, str], ...]) -> list[str]:
    return [f".TP\n.B {_escaped(name)}\n{_escaped(text)}" for name, text in terms]


def _escaped(text: str) -> str:
    r"""Return text that roff prints as it is.

    Example:
        >>> _escaped("a-b\n.c")
        'a\\-b\n\\&.c'
    """
    lines = text.replace("\\", r"\e").replace("-", r"\-").splitlines()
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())

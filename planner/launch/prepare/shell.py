"""Quoting of untrusted text in shell commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from ...errors import UsageError

__all__ = ["quote", "quote_all"]


def quote(text: str) -> str:
    """Return a text as one word of a POSIX shell.

    Raises:
        UsageError: It contains a NUL character.

    Example:
        >>> quote("train.py"), quote("a b; reboot")
        ('train.py', "'a b; reboot'")
    """
    if "\0" in text:
        raise UsageError(f"{text!r} contains a NUL character, which no argument can", hint="remove it")
    return shlex.quote(text)


def quote_all(words: Iterable[str]) -> str:
    """Return words as a shell command line.

    Example:
        >>> quote_all(["python", "train.py", "--name", "a b"])
        "python train.py --name 'a b'"
    """
    return " ".join(quote(word) for word in words)

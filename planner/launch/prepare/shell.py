"""Texts of others in lines of a shell: everything that reaches one goes through here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from ...errors import UsageError

__all__ = ["quote", "quote_all"]


def quote(text: str) -> str:
    """Return a text as one word of a POSIX shell, whatever is in it.

    Raises:
        UsageError: It holds a NUL character, which no argument of a program can.

    Example:
        >>> quote("train.py"), quote("a b; reboot")
        ('train.py', "'a b; reboot'")
    """
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL character: no program can be given it", hint="leave it out")
    return shlex.quote(text)


def quote_all(words: Iterable[str]) -> str:
    """Return words as a command line that gives exactly them.

    Example:
        >>> quote_all(["python", "train.py", "--name", "a b"])
        "python train.py --name 'a b'"
    """
    return " ".join(quote(word) for word in words)

"""Which accounts were used from here: written down before anything is made in one, or nobody would look there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["KnownAccounts"]


class KnownAccounts:
    """Names of accounts (projects, subscriptions) in a file, one a line, and the one that the environment names.

    Args:
        file: Where they are.
        current: Of the environment; None: it names none.
    """

    def __init__(self, file: Path, *, current: str | None) -> None:
        self._file = file
        self.current = current

    def names(self) -> list[str]:
        """Return the accounts that machines of ours may be in."""
        known = [self.current] if self.current else []
        if self._file.exists():
            known += self._file.read_text(encoding="utf-8").split()
        return list(dict.fromkeys(known))

    def add(self, name: str) -> None:
        """Write one down and force it to the disk."""
        if name in self.names():
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())

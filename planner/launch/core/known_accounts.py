"""Record of cloud accounts used from this computer, so that `ps` and `reap` find every machine.

An account is recorded before anything is made in it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["KnownAccounts"]


class KnownAccounts:
    """Names of accounts (projects, subscriptions): one per line of a file, and the current one.

    Args:
        file: The file.
        current: Account that the environment selects; None without one.
    """

    def __init__(self, file: Path, *, current: str | None) -> None:
        self._file = file
        self.current = current

    def names(self) -> list[str]:
        """Return the accounts that may contain machines of gpuplan."""
        known = [self.current] if self.current else []
        if self._file.exists():
            known += self._file.read_text(encoding="utf-8").split()
        return list(dict.fromkeys(known))

    def add(self, name: str) -> None:
        """Record an account and force it to disk."""
        if name in self.names():
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())

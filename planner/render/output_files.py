"""Output files, written completely or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..errors import UsageError
from ..files import write_atomically

__all__ = ["require_writable", "write_text"]


def require_writable(path: Path, *, flag: str) -> None:
    """Raise UsageError unless a file can be written; called before the work whose result it holds."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(
            f"`{flag} {path}` is a folder", hint=f"give a file name: `{flag} {path / 'plan.json'}`"
        )
    if not folder.is_dir():
        raise UsageError(f"`{flag} {path}`: there is no folder `{folder}`", hint="create it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"`{flag} {path}` cannot be written: {error.strerror}", hint="choose another file"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    write_atomically(path, text)

"""Results as files: complete, or not there at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import UsageError

__all__ = ["require_writable", "write_text"]


def require_writable(path: Path, *, flag: str) -> None:
    """Raise UsageError unless a file can be written there; to be called before the work that fills it."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"`{flag} {path}` is a folder", hint=f"name a file: `{flag} {path / 'plan.json'}`")
    if not folder.is_dir():
        raise UsageError(f"`{flag} {path}`: there is no folder `{folder}`", hint="create it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"`{flag} {path}` cannot be written: {error.strerror}", hint="name a file elsewhere"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there: a reader sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    """Return the process's mask, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Durable appends and advisory file locks."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...files import sync_folder

__all__ = ["append_durably", "locked"]


def append_durably(path: Path, line: str) -> None:
    """Append a line and return when it is on disk; terminate a partial last line first."""
    is_new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + line.encode() + b"\n"
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        sync_folder(path.parent)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a file; yield whether it is locked: False when another process has locked it and `wait` is off.

    The operating system releases the lock when its process ends.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)

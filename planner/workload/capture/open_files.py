"""Files that a process has open for writing: from now on it writes to others, the same but for their folder."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

LARGEST_COPY_BYTES = 2**28  # a larger file is opened anew for reading alone
READ_AND_WRITE, PRIVATE_IN_PLACE = 3, 0x12  # arguments of mmap
_SHARED = re.compile(r"^(\w+)-(\w+) rw.s (\w+) \S+ \d+ +(/.*)$", re.MULTILINE)


def find_open_path(descriptor: int) -> str:
    """Return the path of an open file; OSError if it is unknown."""
    if hasattr(fcntl, "F_GETPATH"):  # macOS
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def list_written(is_kept: Callable[[str], bool]) -> dict[int, str]:
    """Return the path of each file that is open for writing, by descriptor, and write what is buffered."""
    written = dict(_find_written(is_kept))
    for one in gc.get_objects() if written else ():
        with suppress(Exception):
            if isinstance(one, io.IOBase) and one.fileno() in written:
                one.flush()
    return written


def _find_written(is_kept: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # closed or deleted since
            if number > 2 and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                path, status = find_open_path(number), os.stat(number)
                if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.stat(path)) and not is_kept(path):
                    yield number, path


def open_anew(written: dict[int, str], find: Callable[[str], str]) -> None:
    """Let each descriptor be one of the file to write instead.

    Args:
        written: See `list_written`.
        find: Function that returns the path of that file.
    """
    for number, path in written.items():
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        try:
            if os.stat(number).st_size > LARGEST_COPY_BYTES:
                raise OSError(errno.EFBIG, "too large to be copied", path)
            new = os.open(find(path), flags)
        except OSError:
            new = os.open(path, flags & ~os.O_ACCMODE)
        with suppress(OSError):
            os.lseek(new, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(new, number, inheritable=os.get_inheritable(number))
        os.close(new)


def make_mappings_private(is_kept: Callable[[str], bool]) -> None:
    """Let what is written to mapped files stay in memory (Linux)."""
    maps, c_library = Path("/proc/self/maps"), ctypes.CDLL(None)
    text = maps.read_text(encoding="utf-8", errors="surrogateescape") if maps.exists() else ""
    for start, end, offset, path in _SHARED.findall(text):
        with suppress(OSError):  # no file any more
            if not is_kept(path):
                one, first, last = os.open(path, os.O_RDONLY), int(start, 16), int(end, 16)
                place = [ctypes.c_size_t(value) for value in (first, last - first, int(offset, 16))]
                c_library.mmap(*place[:2], READ_AND_WRITE, PRIVATE_IN_PLACE, one, place[2])
                os.close(one)

"""Files that are there whole, or not at all."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cache_folder", "data_folder", "keep_newest", "sync_folder", "write_whole"]


def cache_folder(part: str) -> Path:
    """Return the folder of what can be worked out anew: in `GPUPLAN_CACHE_DIR`, or in the platform's own.

    Args:
        part: What is kept there.
    """
    override = os.environ.get("GPUPLAN_CACHE_DIR")
    if override:
        return Path(override, part)
    from platformdirs import user_cache_path

    return user_cache_path("gpuplan") / part


def data_folder(setting: Path | None = None) -> Path:
    """Return the folder of refreshed prices: the setting, `GPUPLAN_DATA_DIR`, or the platform's data folder."""
    if setting is not None:
        return setting
    if os.environ.get("GPUPLAN_DATA_DIR"):
        return Path(os.environ["GPUPLAN_DATA_DIR"]).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_path("gpuplan")) / "catalog"


def write_whole(path: Path, data: str | bytes, *, durable: bool = False, private: bool = False) -> None:
    """Write a file beside its place, then move it there: a reader sees the old file or the new one.

    Args:
        path: Its folder is there.
        data: Text is written as UTF-8.
        durable: Whether it has to be on the disk before this returns, for a crash of the machine to spare it.
        private: Whether only its owner may read it.

    Raises:
        OSError: It cannot be written; the old file is still there, and nothing beside it.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if not private:
            os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def keep_newest(folder: Path, pattern: str, *, files: float = math.inf, size_bytes: float = math.inf) -> None:
    """Delete the least recently written files of a folder until the rest fits; others may do so at the same time.

    Args:
        folder: Of a cache.
        pattern: Of the files' names; others stay, and do not count.
        files: How many may be left [-].
        size_bytes: How much they may hold [bytes].

    Raises:
        OSError: The folder cannot be read, or a file not be deleted.
    """
    total_bytes = 0
    for place, (_, own_bytes, path) in enumerate(sorted(_aged(folder, pattern), reverse=True), start=1):
        total_bytes += own_bytes
        if place > files or total_bytes > size_bytes:
            path.unlink(missing_ok=True)


def _aged(folder: Path, pattern: str) -> Iterator[tuple[float, int, Path]]:
    """Yield when each file was written, its size, and the file; not those that another process just deleted."""
    for path in folder.glob(pattern):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        yield status.st_mtime, status.st_size, path


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk: a rename counts only then."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """Return the process's mask, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Data and cache folders, and files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

_cache_dir: ContextVar[Path | None] = ContextVar("cache_dir", default=None)


def get_platform_folder(kind: Literal["cache", "config", "data", "state"]) -> Path:
    """Return the platform's folder of a kind of files of gpuplan."""
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_path")("gpuplan"))


def get_cache_folder(part: str) -> Path:
    """Return the folder of a named cache: in `GPUPLAN_CACHE_DIR`, the configured folder, or the platform's."""
    return Path(os.environ.get("GPUPLAN_CACHE_DIR") or _cache_dir.get() or get_platform_folder("cache"), part)


def set_cache_dir(folder: Path | None) -> None:
    """Set the folder of all caches for the current thread or task; None for the platform's cache folder."""
    _cache_dir.set(folder)


@contextmanager
def cache_dir_restored() -> Iterator[None]:
    """Restore the folder of all caches at the end of the context."""
    token = _cache_dir.set(_cache_dir.get())
    try:
        yield
    finally:
        _cache_dir.reset(token)


def get_data_folder(setting: Path | None = None) -> Path:
    """Return the folder of refreshed prices: the setting, `GPUPLAN_DATA_DIR`, or the platform's data folder."""
    if setting is not None:
        return setting
    if os.environ.get("GPUPLAN_DATA_DIR"):
        return Path(os.environ["GPUPLAN_DATA_DIR"]).expanduser()
    return get_platform_folder("data") / "catalog"


def write_atomically(path: Path, data: str | bytes, *, durable: bool = False, private: bool = False) -> None:
    """Write a temporary file and move it into place, so that readers see the old file or the new one.

    Args:
        path: Path in an existing folder.
        data: Text is written as UTF-8.
        durable: Whether to force it to disk, so that it survives a crash of the machine.
        private: Whether only its owner may read it.

    Raises:
        OSError: It cannot be written; the old file is kept, and the temporary file removed.

    A device or a pipe (`/dev/null`, `/dev/stdout`) is written to, never replaced.
    """
    import tempfile

    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if not private:
            mask = os.umask(0)  # which can be read only by setting it
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:
            error.filename = str(path)  # which a failed write does not name
        raise
    if durable:
        sync_folder(path.parent)


def delete_oldest(folder: Path, pattern: str, *, size_bytes: int) -> None:
    """Delete the oldest files of a folder until those of a pattern of names have at most a total size [bytes].

    Safe with concurrent processes. OSError if the folder cannot be read, or a file not be deleted.
    """
    found, total_bytes = [], 0
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # deleted meanwhile
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    for _, own_bytes, path in sorted(found, reverse=True):
        total_bytes += own_bytes
        if total_bytes > size_bytes:
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that renames are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Data and cache folders, and files that are written completely or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_cache_dir: ContextVar[Path | None] = ContextVar("cache_dir", default=None)


def get_cache_folder(part: str) -> Path:
    """Return the folder of a cache: in `GPUPLAN_CACHE_DIR`, the configured folder, or the platform's cache
    folder.

    Args:
        part: Name of the cache.
    """
    override = os.environ.get("GPUPLAN_CACHE_DIR") or _cache_dir.get()
    if override:
        return Path(override, part)
    from platformdirs import user_cache_path

    return user_cache_path("gpuplan") / part


def set_cache_dir(folder: Path | None) -> None:
    """Set the folder of all caches for the current thread or task; None for the platform's cache folder.

    Args:
        folder: `cache_dir` of the settings.
    """
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
    import platformdirs

    return Path(platformdirs.user_data_path("gpuplan")) / "catalog"


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
            os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:
            error.filename = str(path)  # which a failed write does not name
        raise
    if durable:
        sync_folder(path.parent)


def delete_oldest(folder: Path, pattern: str, *, files: float = math.inf, size_bytes: float = math.inf) -> None:
    """Delete the oldest files of a folder until the limits are met; safe with concurrent processes.

    Args:
        folder: Cache folder.
        pattern: Glob pattern of file names; other files stay and are not counted.
        files: Maximum number of files [-].
        size_bytes: Maximum total size [bytes].

    Raises:
        OSError: The folder cannot be read, or a file not be deleted.
    """
    total_bytes = 0
    for place, (_, own_bytes, path) in enumerate(sorted(_aged(folder, pattern), reverse=True), start=1):
        total_bytes += own_bytes
        if place > files or total_bytes > size_bytes:
            path.unlink(missing_ok=True)


def _aged(folder: Path, pattern: str) -> Iterator[tuple[float, int, Path]]:
    """Yield modification time, size and path of each file, ignoring files deleted meanwhile."""
    for path in folder.glob(pattern):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        yield status.st_mtime, status.st_size, path


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that renames are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """Return the process's umask, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

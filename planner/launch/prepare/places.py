"""Checks of folders to upload and of paths within them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ...errors import UsageError

__all__ = ["require_inside", "require_sendable"]

_HOMES = (Path("/home"), Path("/Users"))


def require_inside(path: str, *, what: str) -> None:
    """Raise UsageError unless a path is relative and stays within its source.

    Args:
        path: Path of a script or of a requirements file.
        what: Flag or field, for the message.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not path.isprintable() or not pure.name:
        raise UsageError(
            f"{what} {path!r} is not a path within the source",
            hint="give it relative to `--source`: `train.py`",
        )


def require_sendable(folder: Path) -> None:
    """Raise UsageError for the root of the file system and for home folders."""
    real, home = folder.resolve(), Path.home().resolve()
    if real == home or real in home.parents or real.parent in _HOMES or real == Path("/root"):
        raise UsageError(
            f"the source {real} is or contains a home folder, which would be uploaded as a whole",
            hint="move the code to a separate folder: `--source FOLDER`",
        )

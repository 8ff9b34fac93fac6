"""Folders of gpuplan: contents, size and write access."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import cache_dir_restored, get_cache_folder, get_data_folder, set_cache_dir
from .finding import InstallationFinding

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["DataFolder", "abbreviate_home", "find_folder_problems", "list_folders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A folder of gpuplan.

    Args:
        name: Purpose.
        path: Path.
        files, size_bytes: Number of files and total size; 0 if it does not exist.
        writable: Whether it, or the nearest existing parent, is writable.
    """

    name: str
    path: Path
    files: int
    size_bytes: int
    writable: bool


@cache_dir_restored()
def list_folders(settings: Settings) -> list[DataFolder]:
    """Return the folders used with given settings."""
    from ..profile.run_store import get_runs_folder
    from ..settings import get_state_folder

    set_cache_dir(settings.cache_dir)
    places = {
        "traced workloads": get_cache_folder("workloads"),
        "refreshed prices": get_data_folder(settings.data_dir),
        "measured runs": get_runs_folder(settings),
        "launched runs": get_state_folder(settings),
    }
    return [_inspect(name, path) for name, path in places.items()]


def find_folder_problems(found: Sequence[DataFolder]) -> Iterator[InstallationFinding]:
    """Yield folders that are not writable."""
    for folder in found:
        if not folder.writable:
            hint = "correct its permissions, or set GPUPLAN_CACHE_DIR, GPUPLAN_DATA_DIR or GPUPLAN_STATE_DIR"
            text = f"the {folder.name} folder is not writable: {abbreviate_home(folder.path)}"
            yield InstallationFinding(level="warning", text=text, hint=hint)


def abbreviate_home(path: Path) -> str:
    """Abbreviate the home folder in a path as `~`, since reports are shared."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _inspect(name: str, path: Path) -> DataFolder:
    """Inspect a folder."""
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return DataFolder(name=name, path=path, files=len(sizes), size_bytes=sum(sizes), writable=writable)

"""Where gpuplan keeps things: what is there, how much, and whether more could be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["Folder", "folder_findings", "folders", "short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One folder of gpuplan's.

    Args:
        name: What it holds.
        path: Where.
        files, size_bytes: What is in it; 0 when it is not there.
        writable: Whether it, or the nearest folder that is there, can be written.
    """

    name: str
    path: Path
    files: int
    size_bytes: int
    writable: bool


def folders(settings: Settings) -> list[Folder]:
    """Return the folders that hold with some settings."""
    from ..files import cache_folder, data_folder
    from ..plan.own_runs import runs_folder
    from ..settings import state_folder

    places = {
        "traced workloads": cache_folder("workloads"),
        "refreshed prices": data_folder(settings.data_dir),
        "measured runs": runs_folder(),
        "launched runs": state_folder(settings),
    }
    return [_look(name, path) for name, path in places.items()]


def folder_findings(found: Sequence[Folder]) -> Iterator[Finding]:
    """Yield the folders that cannot be written."""
    for folder in found:
        if not folder.writable:
            hint = "correct its permissions, or set GPUPLAN_CACHE_DIR, GPUPLAN_DATA_DIR or GPUPLAN_STATE_DIR"
            text = f"the folder of {folder.name} cannot be written: {short(folder.path)}"
            yield Finding(level="warning", text=text, hint=hint)


def short(path: Path) -> str:
    """Return a path with the user's folder as `~`: reports go to other people."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _look(name: str, path: Path) -> Folder:
    """Return what is in a folder."""
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Folder(name=name, path=path, files=len(sizes), size_bytes=sum(sizes), writable=writable)

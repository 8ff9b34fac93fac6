"""Protection of the user's files from a script whose `fit()` trained nothing.

After its first `fit()` a script saves weights, histories and plots that would replace real ones. What it writes
from then on goes to a temporary folder, and it reads it from there; deleting, renaming and starting programs fail.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = frozenset({
    "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.system", "os.exec",
    "os.posix_spawn", "subprocess.Popen",
})  # fmt: skip


def make_scratch(folder: Path | None) -> Path:
    """Make the folder of redirected files in a folder, or in a new temporary one."""
    scratch = (folder or Path(tempfile.mkdtemp(prefix="gpuplan-"))) / "written"
    scratch.mkdir(exist_ok=True)
    return scratch


def protect_files(scratch: Path) -> None:
    """Redirect what this process writes from now on; it cannot be undone.

    Args:
        scratch: Existing folder for the redirected files, removed by the parent process.
    """
    redirection = _Redirection(scratch)
    opened, opened_raw = io.open, os.open

    def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "x" not in mode:
            file = redirection.find(file, writes=any(sign in mode for sign in "wa+"), keeps="w" not in mode)
        return opened(file, mode, *args, **kwargs)

    def open_raw(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_EXCL:
            redirection.own.add(os.path.abspath(os.fspath(path)))
        elif kwargs.get("dir_fd") is None:
            path = redirection.find(path, writes=bool(flags & WRITING), keeps=not flags & os.O_TRUNC)
        return opened_raw(path, flags, *args, **kwargs)

    builtins.open = io.open = open_file
    os.open = open_raw
    sys.addaudithook(redirection.refuse)
    _keep_models_unsaved()


class _Redirection:
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._copies: dict[str, str] = {}
        self.own: set[str] = set()  # temporary files that the script created
        home = os.path.expanduser("~")
        kept = ("/dev", "/proc", str(scratch.parent), f"{home}/.keras", f"{home}/.cache")
        self._kept = tuple(os.path.join(folder, "") for folder in kept)

    def find(self, file: Any, *, writes: bool, keeps: bool) -> Any:
        """Return the path to open instead of one that is written, or was."""
        if not isinstance(file, (str, os.PathLike)):
            return file
        path = os.path.abspath(os.fsdecode(os.fspath(file)))
        if path in self._copies:
            return self._copies[path]
        if not writes or path.startswith(self._kept) or path in self.own:
            return file
        copy = str(self._scratch / f"{len(self._copies)}-{os.path.basename(path)}")
        if keeps and os.path.isfile(path):
            shutil.copyfile(path, copy)
        self._copies[path] = copy
        return copy

    def refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise PermissionError for what cannot be redirected."""
        if event not in REFUSED:
            return
        path = arguments[0]
        if isinstance(path, int):  # a file that is open already
            return
        if isinstance(path, (str, os.PathLike)) and event.startswith("os."):
            path = os.path.abspath(os.fsdecode(os.fspath(path)))
            if path in self.own or path.startswith((*self._kept, _temporary_prefix())):
                return
        raise PermissionError(f"{event} after fit(), which trained nothing here")


def _temporary_prefix() -> str:
    """Return the start of the paths that `tempfile` creates."""
    return os.path.join(tempfile.gettempdir(), tempfile.gettempprefix())


def _keep_models_unsaved() -> None:
    """Let Keras save no model: its libraries write files below Python."""
    import keras

    def save_nothing(*args: Any, **kwargs: Any) -> None:
        """Save nothing."""

    for owner, names in (
        (keras.Model, ("save", "save_weights", "export")),
        (keras.saving, ("save_model", "save_weights")),
        (keras.models, ("save_model",)),
    ):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, save_nothing)

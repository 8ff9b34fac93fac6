"""Output of a process that runs the user's code: kept away, and shown when the process fails."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ...errors import GpuplanError
from ..errors import BackendError

STDERR = 2
LINES_SHOWN = 20

show_script_output: ContextVar[bool] = ContextVar("show_script_output", default=False)


class ScriptOutput:
    """Standard output and error of a process, in a file unless they are to be shown."""

    def __init__(self, path: Path, *, name: str) -> None:
        """Open the file.

        Args:
            path: Path of the file.
            name: MODEL reference, for the heading.
        """
        self._path, self._name = path, name
        self._file = None if show_script_output.get() else path.open("wb")

    @property
    def target(self) -> int:
        """File descriptor for the process."""
        return STDERR if self._file is None else self._file.fileno()

    @contextmanager
    def shown_on_failure(self) -> Iterator[None]:
        """Write the last lines to standard error when the block fails; another backend may still succeed."""
        try:
            yield
        except BackendError:
            raise
        except GpuplanError:
            self._show()
            raise
        finally:
            if self._file is not None:
                self._file.close()

    def _show(self) -> None:
        if self._file is None:
            return
        with self._path.open(encoding="utf-8", errors="replace") as file:
            lines = deque((line for line in file if line.strip()), LINES_SHOWN)
        if lines:
            sys.stderr.write(f"last lines of the output of {self._name}:\n")
            sys.stderr.write("".join(f"  {line.rstrip()}\n" for line in lines))

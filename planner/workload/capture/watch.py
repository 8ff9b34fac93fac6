"""Child's side of a process that runs the user's code: end with the parent, position reports, and imports.

Twice a second a thread writes the innermost line in the user's files to `where.json`. While C code holds the
interpreter's lock, that thread is blocked; then the parent sends `ASK`, and `faulthandler` writes the traceback of
the main thread to `stuck.txt`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from queue import SimpleQueue
from types import FrameType, ModuleType
from typing import Any

from ..errors import find_own_frame

WHERE, STUCK = "where.json", "stuck.txt"
ASK = signal.SIGURG  # ignored without a handler
PERIOD_S = 0.5
STDIN = 0


def end_with_parent() -> SimpleQueue[bytes]:
    """End the process group when the parent closes stdin; the user's code sees an empty stdin.

    Return a queue of the bytes that the parent writes to stdin.
    """
    written: SimpleQueue[bytes] = SimpleQueue()
    lifeline = os.dup(STDIN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    threading.Thread(target=_wait_for_end, args=(lifeline, written), daemon=True).start()
    return written


def _wait_for_end(lifeline: int, written: SimpleQueue[bytes]) -> None:
    while byte := os.read(lifeline, 1):
        written.put(byte)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


class PositionReporter:
    """Thread that reports the start of the user's code and the position of the main thread."""

    def __init__(self, folder: Path, *, own: str) -> None:
        """Start reporting, right before the user's code, whose own files are in `own`."""
        self._own = own
        self._over = threading.Event()
        self._where = os.open(folder / WHERE, os.O_WRONLY | os.O_CREAT, 0o600)
        stuck = os.open(folder / STUCK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(ASK, file=stuck, all_threads=False)
        self._main = threading.main_thread().ident
        self._begun_s = time.monotonic()  # the same clock in all processes of a machine
        self._write(None)
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Stop reporting."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self._write(find_own_frame(sys._current_frames().get(self._main or 0), self._own))

    def _write(self, frame: FrameType | None) -> None:
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (None, None)
        text = json.dumps({"begun_s": self._begun_s, "file": file, "line": line}).encode()
        os.pwrite(self._where, text, 0)
        os.ftruncate(self._where, len(text))


def call_after_import(name: str, function: Callable[[Any], None]) -> None:
    """Call a function with a top-level module once it is imported, or at once if it already is."""
    if name in sys.modules:
        function(sys.modules[name])
        return
    if _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)
    _waiting.functions.setdefault(name, []).append(function)


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.functions: dict[str, list[Callable[[Any], None]]] = {}  # by the module for which they wait

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        functions = self.functions.get(fullname)
        if functions is None:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for function in functions:
                    function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_waiting = _Finder()

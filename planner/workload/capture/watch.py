"""Child's side of a process that runs the user's code: its position, and imports.

Where it is, `faulthandler` writes on a signal of the parent, also while C code holds the interpreter's lock.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

BEGUN, STACK = "begun.txt", "stack.txt"
ASK = signal.SIGURG  # ignored without a handler


def answer_with_position(folder: Path) -> None:
    """Note that the user's code begins; write the traceback of the main thread whenever the parent asks for it."""
    stack = os.open(folder / STACK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(ASK, file=stack, all_threads=False)
    (folder / BEGUN).write_text(str(time.monotonic()))  # the same clock in all processes of a machine


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

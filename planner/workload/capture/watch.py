"""Functions that are called once a module is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


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
        spec = PathFinder.find_spec(fullname, path) if fullname in self.functions else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for function in self.functions[fullname]:
                    function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_waiting = _Finder()

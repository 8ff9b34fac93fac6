"""Replacement of what modules offer, once they are imported, by the path of each attribute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Make = Callable[[Any], Any]


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


def replace_after_import(module: str, path: str, make: Make) -> None:
    """Replace an attribute (`Model.fit`) that a module has once it is imported, by what `make` makes of it."""

    def replace(imported: Any) -> None:
        *owners, name = path.split(".")
        with suppress(AttributeError):
            owner = reduce(getattr, owners, imported)
            setattr(owner, name, make(getattr(owner, name)))

    call_after_import(module, replace)


def around(call: Callable[..., Any]) -> Make:
    """Return a decorator whose functions call one with the decorated function and their arguments."""

    def make(original: Any) -> Any:
        @wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            return call(original, *args, **kwargs)

        return function

    return make

"""Replacement of what modules offer, once they are imported, by the path of each attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce, wraps
from typing import Any

from ..keras_layers import replacing
from .watch import call_after_import

Make = Callable[[Any], Any]


def replace_after_import(
    module: str, path: str, make: Make, *, put: Callable[[Any, str, Any], None] = setattr
) -> None:
    """Replace an attribute of a module once it is imported, unless its version lacks it.

    Args:
        module, path: Name of the module, and of the attribute in it (`Model.fit`).
        make: Function that returns the replacement of an original.
        put: Function that sets an attribute of an owner.
    """

    def replace(imported: Any) -> None:
        *owners, name = path.split(".")
        with suppress(AttributeError):
            owner = reduce(getattr, owners, imported)
            put(owner, name, make(getattr(owner, name)))

    call_after_import(module, replace)


def around(call: Callable[..., Any]) -> Make:
    """Return what makes functions that call one with their original, and their own arguments after it."""

    def make(original: Any) -> Any:
        @wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            return call(original, *args, **kwargs)

        return function

    return make


class Patches:
    """Attributes that are replaced, and can be put back for a while."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, str, Any]] = []
        self._replaced = ExitStack()
        self.active = True

    def replace(self, module: str, path: str, call: Callable[..., Any]) -> None:
        """Replace a function as `around` does, see `replace_after_import`."""

        def put(*row: Any) -> None:
            self._rows.append(row)
            if self.active:
                self._replaced.enter_context(replacing(row))

        replace_after_import(module, path, around(call), put=put)

    def undo(self) -> None:
        """Put back what was there."""
        self.active = False
        self._replaced.close()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Context in which nothing is replaced."""
        self.undo()
        try:
            yield
        finally:
            self.active = True
            self._replaced.enter_context(replacing(*self._rows))

"""Results kept for the object that they are computed from, which is too large to be compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class IdentityCache(Generic[Result]):
    """Results by the identity of an object and a key, so that equal requests get the same result object."""

    def __init__(self) -> None:
        """Start without results."""
        self._known: dict[tuple[int, Hashable], tuple[object, Result]] = {}

    def get(self, source: object, key: Hashable, build: Callable[[], Result]) -> Result:
        """Return the result for an object and a key, computed on the first request.

        Args:
            source: What it is computed from; it is kept, so that its id stays unique.
            key: Everything else that it depends on.
            build: Function that computes it.
        """
        place = (id(source), key)
        if place not in self._known:
            self._known[place] = (source, build())
        return self._known[place][1]

"""Cache of results keyed by the identity of large objects, which are too expensive to compare."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class IdentityCache(Generic[Result]):
    """Cache keyed by the identity of an object and a key; equal requests return the same result object."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[tuple[int, Hashable], tuple[object, Result]] = {}

    def get(self, source: object, key: Hashable, build: Callable[[], Result]) -> Result:
        """Return the result for an object and a key, computed on the first request.

        Args:
            source: Object that the result is computed from; a reference is kept, so that its id stays unique.
            key: All other inputs of the result.
            build: Function that computes the result.
        """
        place = (id(source), key)
        if place not in self._known:
            self._known[place] = (source, build())
        return self._known[place][1]

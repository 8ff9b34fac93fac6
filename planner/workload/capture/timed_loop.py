"""A training loop of a script's own that runs as it is, with the end of each of its steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax

from ..errors import find_own_places


class TimedLoop:
    """Timer in place of `TrainingLoops`, for a script that runs for real.

    It times the first step that trains: a function that a backend compiles, or the work between two updates. The
    time counts from the end of the step before, of whatever kind, and so includes the script's own work.
    """

    def __init__(self, folder: str, *, prepare: Callable[[int], None], add: Callable[[float], None]) -> None:
        """Start before the script.

        Args:
            folder: Folder of the script.
            prepare: Called at the end of the first step, which compiles, with its batch size.
            add: Called at the end of each further one, with its time [s].
        """
        self.folder, self._prepare, self._add = folder, prepare, add
        self.begin: Callable[[], object] = int  # called before `prepare`
        self.batch_size = 1  # of the last call of a model [-]
        self._timed: object = None  # the function and shapes, or the place, of the first step
        self._training: set[object] = set()
        self._updates: int | None = None  # in the function that runs; None outside
        self._ended_s = 0.0

    @property
    def is_tracing(self) -> bool:
        """Whether a compiled function of the user's runs, or is traced as part of its first run."""
        return self._updates is not None

    def enter(self, phase: Any) -> None:
        """Ignore the beginning of a backward pass."""

    def follow(self, key: object, run: Callable[[], Any], **_: Any) -> Any:
        """Run a compiled function; it trains if an optimizer updates variables while it is traced."""
        self._updates = 0
        try:
            found = jax.block_until_ready(run())
            if self._updates:
                self._training.add(key)
        finally:
            self._updates = None
        if key in self._training:
            self._end(key)
        return found

    def update(self, optimizer: Any, variables: list[Any]) -> None:
        """Take an update: in a compiled function, or as the end of a step."""
        if self._updates is None:
            self._end(tuple(find_own_places(sys._getframe(1), (self.folder,))))
        else:
            self._updates += 1

    def _end(self, key: object) -> None:
        if self._timed is None:
            self._timed = key
            self.begin()
            self._prepare(self.batch_size)
        elif key == self._timed:
            self._add(time.perf_counter() - self._ended_s)
        self._ended_s = time.perf_counter()

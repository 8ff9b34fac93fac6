"""Length of training data that does not know it: counted in one pass, where that is quick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..build.fit_inputs import FitInputs
from ..options import iter_specs

LONGEST_PASS_S, LONGEST_OF_SCRIPT_S = 3.0, 5.0


class DataCounter:
    """Counter of batches and samples, once for each data object of a script."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, tuple[int, int] | None]] = {}  # by id; the object is kept alive
        self._left_s = LONGEST_OF_SCRIPT_S

    def complete(self, feed: FitInputs, arguments: dict[str, Any]) -> FitInputs:
        """Return an input with the counts that `fit()` would find by reaching the end of its data.

        Args:
            feed: Input of the call; its first batch may have been taken from a generator.
            arguments: Arguments of the call by name.
        """
        held_out = arguments.get("validation_data")
        if feed.samples is None and (found := self._count(arguments["x"], taken=feed.batch_size or 0)):
            feed = replace(feed, steps_per_epoch=found[0], samples=found[1])
        is_open = feed.validation_samples is None and not arguments.get("validation_steps")
        if held_out is not None and is_open and (found := self._count(held_out, taken=0)):
            often = arguments.get("validation_freq") or 1
            feed = replace(feed, validation_samples=max(1, found[1] // often) if isinstance(often, int) else None)
        return feed

    def _count(self, data: Any, *, taken: int) -> tuple[int, int] | None:
        """Return batches and samples; None where they are too many, or cannot be read twice."""
        if id(data) not in self._known:
            started_s = time.monotonic()
            self._known[id(data)] = data, _count_in_time(data, min(LONGEST_PASS_S, self._left_s), taken)
            self._left_s = max(0.0, self._left_s - (time.monotonic() - started_s))
        return self._known[id(data)][1]


def _count_in_time(data: Any, limit_s: float, taken: int) -> tuple[int, int] | None:
    """Return batches and samples of data that is iterated to its end within a time; `taken` samples are gone."""
    cardinality = getattr(data, "cardinality", None)
    if hasattr(data, "__getitem__") or limit_s <= 0 or (cardinality is not None and int(cardinality()) == -1):
        return None  # by index, or endless
    is_iterator = isinstance(data, Iterator)
    until_s, batches, samples = time.monotonic() + limit_s, int(is_iterator and taken > 0), is_iterator * taken
    try:
        for batch in data:
            batches, samples = batches + 1, samples + int(next(iter_specs(batch)).shape[0])
            if time.monotonic() > until_s:
                return None
    except Exception:  # the data is the user's code, which fails in its own time
        return None
    return (batches, samples) if batches else None

"""Configurations that a profile measures: batch sizes and precisions."""

from __future__ import annotations

from collections.abc import Iterator

from ..profile_schema import ProfileDocument
from .document import Configuration
from .profile_request import ProfileRequest

SWEEP = 4  # ratio of the two batch sizes of the default sweep [-]


def iter_configurations(request: ProfileRequest, document: ProfileDocument) -> Iterator[Configuration]:
    """Yield batch sizes and precisions; by default the model's own batch size and another one derived from it."""
    for precision in request.precisions or (None,):
        tried: set[int] = set()
        for batch_size in request.batch_sizes or (request.options.batch_size,):
            yield from _skip_too_large(document, batch_size, precision)
            tried |= {size for row in document["rows"] if (size := row["batch_size"])}
        if not request.batch_sizes and tried and request.data == "synthetic":
            own = max(tried)
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            fixed = any("fixed" in (row["message"] or "") for row in document["rows"])
            if not fixed:
                yield from _skip_too_large(document, other, precision)


def count_configurations(request: ProfileRequest) -> int:
    """Return the number of configurations that `iter_configurations` yields if all fit in memory."""
    derived = not request.batch_sizes and request.data == "synthetic"
    return max(len(request.precisions), 1) * (2 if derived else max(len(request.batch_sizes), 1))


def _skip_too_large(
    document: ProfileDocument, batch_size: int | None, precision: str | None
) -> Iterator[Configuration]:
    """Yield a configuration unless a batch of at most its size ran out of memory at its precision."""
    full = [
        size
        for row in document["rows"]
        if row["status"] == "out_of_memory"
        and row["asked_precision"] == precision
        and (size := row["batch_size"])
    ]
    if batch_size is not None and full and batch_size >= min(full):
        return
    yield {"batch_size": batch_size, "precision": precision}

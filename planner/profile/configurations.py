"""Configurations that a profile measures: batch sizes and precisions."""

from __future__ import annotations

from collections.abc import Iterator

from ..profile_schema import ProfileDocument
from .document import Configuration
from .profile_request import ProfileRequest

SWEEP = 4  # ratio of the two batch sizes of the default sweep [-]


def iter_configurations(request: ProfileRequest, document: ProfileDocument) -> Iterator[Configuration]:
    """Yield batch sizes and precisions; by default the model's own batch size and another one derived from it.

    None is yielded of which a batch of at most its size ran out of memory at its precision.
    """
    for precision in request.precisions or (None,):
        for batch_size in request.batch_sizes or (request.options.batch_size,):
            if not _is_too_large(document, batch_size, precision):
                yield {"batch_size": batch_size, "precision": precision}
        own = max((size for row in document["rows"] if (size := row["batch_size"])), default=None)
        fixed = any("fixed" in (row["message"] or "") for row in document["rows"])
        if _derives_another(request) and own is not None and not fixed:
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            if not _is_too_large(document, other, precision):
                yield {"batch_size": other, "precision": precision}


def count_configurations(request: ProfileRequest) -> int:
    """Return the number of configurations that `iter_configurations` yields if all fit in memory."""
    sizes = 2 if _derives_another(request) else max(len(request.batch_sizes), 1)
    return max(len(request.precisions), 1) * sizes


def _derives_another(request: ProfileRequest) -> bool:
    return not request.batch_sizes and request.data == "synthetic"


def _is_too_large(document: ProfileDocument, batch_size: int | None, precision: str | None) -> bool:
    return batch_size is not None and any(
        row["status"] == "out_of_memory" and row["asked_precision"] == precision
        for row in document["rows"]
        if row["batch_size"] and row["batch_size"] <= batch_size
    )

"""Batch size, precision and backend of a running `fit`."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["collect_fit_info", "find_batch_size", "find_epoch_iterator"]


def find_epoch_iterator() -> Any:
    """Return the `EpochIterator` of the calling `fit()`, or None.

    Keras does not pass it to callbacks, so it is read from the calling frames.
    """
    frame = inspect.currentframe()
    while frame is not None:
        iterator = frame.f_locals.get("epoch_iterator")
        if hasattr(iterator, "data_adapter"):
            return iterator
        frame = frame.f_back
    return None


def find_batch_size() -> int | None:
    """Return the batch size of the calling `fit()`."""
    size = getattr(getattr(find_epoch_iterator(), "data_adapter", None), "batch_size", None)
    return int(size) if size else None


def collect_fit_info(model: Any) -> dict[str, Any]:
    """Return batch size, precision and backend of the calling `fit()`."""
    import keras

    return {
        "batch_size": find_batch_size(),
        "precision": str(model.dtype_policy.name),
        "backend": str(keras.backend.backend()),
    }

"""Facts of a training step, as far as Keras tells its callbacks or can be asked."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["batch_size_of_fit", "facts_of", "iterator_of_fit"]


def iterator_of_fit() -> Any:
    """Return the `EpochIterator` of the `fit()` that is calling; None without one.

    Keras does not hand it to callbacks, so it is read from the calling frames.
    """
    frame = inspect.currentframe()
    while frame is not None:
        iterator = frame.f_locals.get("epoch_iterator")
        if hasattr(iterator, "data_adapter"):
            return iterator
        frame = frame.f_back
    return None


def batch_size_of_fit() -> int | None:
    """Return the batch size of the `fit()` that is calling."""
    size = getattr(getattr(iterator_of_fit(), "data_adapter", None), "batch_size", None)
    return int(size) if size else None


def facts_of(model: Any) -> dict[str, Any]:
    """Return batch size, precision and backend of the `fit()` that is calling."""
    import keras

    return {
        "batch_size": batch_size_of_fit(),
        "precision": str(model.dtype_policy.name),
        "backend": str(keras.backend.backend()),
    }

"""What a training step is made of, as far as Keras tells its callbacks or can be asked."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["batch_size_of_fit", "facts_of"]


def batch_size_of_fit() -> int | None:
    """Return the batch size of the `fit()` that is calling: Keras tells its callbacks everything else."""
    frame = inspect.currentframe()
    while frame is not None:
        iterator = frame.f_locals.get("epoch_iterator")
        adapter = getattr(iterator, "data_adapter", None)
        if adapter is not None:
            size = getattr(adapter, "batch_size", None)
            return int(size) if size else None
        frame = frame.f_back
    return None


def facts_of(model: Any) -> dict[str, Any]:
    """Return batch size, precision and backend of the `fit()` that is calling."""
    import keras

    return {
        "batch_size": batch_size_of_fit(),
        "precision": str(model.dtype_policy.name),
        "backend": str(keras.backend.backend()),
    }

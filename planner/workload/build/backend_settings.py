"""Settings of Keras and its backend, read after the user's code ran."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

__all__ = ["find_tf32_products", "note_attention_dropout"]

# Values of `jax_default_matmul_precision` without TF32 (docs.jax.dev, `jax.lax.Precision`).
FULL_FLOAT32 = ("highest", "float32", "F32_F32_F32")


def note_attention_dropout(model: Any) -> Iterator[str]:
    """Yield a note if attention layers have dropout, with which Keras 3.15 computes and stores the scores."""
    import keras

    kinds = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
    attention = [layer for layer in model._flatten_layers() if isinstance(layer, kinds)]
    dropped = sum(bool(getattr(layer, "_dropout", 0) or getattr(layer, "dropout", 0)) for layer in attention)
    if dropped:
        yield f"attention is not fused: {dropped} of {len(attention)} attention layers have dropout"


def find_tf32_products() -> Literal["all", "convolutions", "none"]:
    """Return the float32 products that may run in TF32, by the backend's settings after the user's code ran.

    JAX: `jax_default_matmul_precision`; TensorFlow: `enable_tensor_float_32_execution`, also if the model itself
    is traced on JAX; PyTorch: `set_float32_matmul_precision` and `torch.backends.cudnn.allow_tf32`.
    """
    import jax
    import keras

    if keras.backend.backend() == "torch":
        torch = sys.modules["torch"]
        if torch.get_float32_matmul_precision() != "highest":
            return "all"
        return "convolutions" if torch.backends.cudnn.allow_tf32 else "none"
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.config.experimental.tensor_float_32_execution_enabled():
        return "none"
    return "none" if jax.config.jax_default_matmul_precision in FULL_FLOAT32 else "all"

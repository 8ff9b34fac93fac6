"""Settings of Keras and its backend, read after the user's code ran."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

from ..errors import OTHER_BACKENDS, BackendError

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


def require_backend_of_step(model: Any, text: str) -> None:
    """Raise BackendError if the model's own `train_step` uses another framework than the current backend.

    Keras passes other arguments to `train_step` on JAX, so that it would fail without naming the framework.

    Args:
        model: Keras model.
        text: Reference as given by the user.
    """
    import keras

    step = getattr(type(model), "train_step", None)
    code, names = getattr(step, "__code__", None), getattr(step, "__globals__", {})
    if code is None or names.get("__name__", "").split(".")[0] == "keras":
        return
    used = {getattr(names.get(name), "__name__", "").split(".")[0] for name in code.co_names}
    for backend in OTHER_BACKENDS:
        if backend in used and backend != keras.backend.backend():
            raise BackendError(
                f"{text}: `train_step` of {type(model).__name__} needs the {backend} backend",
                hint=f"`pip install 'gpuplan[{backend}]'`",
                backend=backend,
            )

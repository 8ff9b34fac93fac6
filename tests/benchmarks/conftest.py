"""The scripts' own folder on the path, and Keras left as it was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture
def keras_as_found() -> Iterator[None]:
    """Give back Keras's policy and JAX's precision after a test that changes them."""
    import jax
    import keras

    policy, precision = keras.config.dtype_policy(), jax.config.jax_default_matmul_precision
    yield
    keras.config.set_dtype_policy(policy)
    jax.config.update("jax_default_matmul_precision", precision)

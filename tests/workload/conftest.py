"""Keras on JAX for the tests of this process, and a cache folder of each test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep traces of a test away from the user's own, and from other tests."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(folder))
    return folder

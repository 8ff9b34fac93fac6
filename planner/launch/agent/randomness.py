"""States of the random number generators that determine the order of data: Python, NumPy and PyTorch.

A restarted process that restores them draws the same permutations, whether or not the script seeds them.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["capture_random_states", "restore_random_states"]


def capture_random_states(loader: Any = None) -> dict[str, Any]:
    """Return the states as arrays, by name.

    Args:
        loader: PyTorch `DataLoader`, which may have its own generator.
    """
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"python": np.array([version, *words, math.nan if gauss is None else gauss])}
    numpy_state = np.random.get_state()
    if isinstance(numpy_state, tuple) and numpy_state[0] == "MT19937":
        states["numpy"] = np.array([*numpy_state[1], *numpy_state[2:]], dtype=np.float64)
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy()
    if getattr(loader, "generator", None) is not None:
        states["loader"] = loader.generator.get_state().numpy()
    return states


def restore_random_states(states: Mapping[str, Any], loader: Any = None) -> None:
    """Restore the states of `capture_random_states`; generators missing on either side are unchanged."""
    if "python" in states:
        version, *words, gauss = states["python"].tolist()
        random.setstate(
            (int(version), tuple(int(word) for word in words), None if math.isnan(gauss) else gauss)
        )
    if "numpy" in states:
        *keys, position, has_gauss, cached = states["numpy"].tolist()
        np.random.set_state(
            ("MT19937", np.array(keys, dtype=np.uint32), int(position), int(has_gauss), cached)
        )
    if "torch" in states and "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.from_numpy(states["torch"]))
    if "loader" in states and getattr(loader, "generator", None) is not None:
        loader.generator.set_state(sys.modules["torch"].from_numpy(states["loader"]))

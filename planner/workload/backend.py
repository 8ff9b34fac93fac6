"""Backend on which the user's own run of a script computes, which need not be the one it is traced on."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

OTHER_BACKENDS = ("tensorflow", "torch")  # than JAX
# Set in the process that traces a script, which may change `KERAS_BACKEND` itself.
KERAS_DEFAULT = "GPUPLAN_KERAS_DEFAULT"
TRACED_ON = "GPUPLAN_TRACED_ON"
LAST_TRACE = "GPUPLAN_LAST_TRACE"  # where no other backend is tried any more


def find_keras_default() -> str | None:
    """Return the backend that Keras takes where nothing sets `KERAS_BACKEND`; None for JAX.

    It is the one of `keras.json` in `KERAS_HOME` (`~/.keras`), TensorFlow without it, and JAX if that is missing.
    """
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        name = json.loads((folder / "keras.json").read_bytes()).get("backend", "tensorflow")
    except (OSError, ValueError, AttributeError):
        name = "tensorflow"
    return name if name in OTHER_BACKENDS and find_spec(name) is not None else None


def get_user_backend() -> str | None:
    """Return the backend that the user, the script or Keras's settings name, in a process that traces."""
    return os.environ.get("KERAS_BACKEND") or os.environ.get(KERAS_DEFAULT)


def find_own_backend() -> str | None:
    """Return the backend that the user set, if the code is traced on another one."""
    wanted, traced = get_user_backend(), os.environ.get(TRACED_ON)
    return None if traced is None or wanted == traced else wanted

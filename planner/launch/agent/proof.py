"""Proof before training: `python -m …proof FOLDER` fails with a sentence unless the machine can train its plan.

Keras imports and computes, its backend sees the plan's accelerators, and the disk takes a checkpoint. A process of
its own: it leaves no memory of the accelerator in use, and the script may still set its backend and its flags.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from .checkpoint import read_json
from .runner import choose_backend

ROOM_GIB = 1.0  # left for checkpoints and the log
_SET_BACKEND = re.compile(r"""KERAS_BACKEND["']\W+(jax|tensorflow|torch)\b""")


def main(folder: Path) -> None:
    """Exit with the first problem; without one, return."""
    params = read_json(folder / "params.json")
    problem = find_disk_problem(Path(params["work"]))
    if not problem:
        chosen = _SET_BACKEND.search(Path(params["script"]).read_text(encoding="utf-8", errors="replace"))
        if chosen:
            os.environ["KERAS_BACKEND"] = chosen[1]
        choose_backend()
        import keras

        keras.ops.convert_to_numpy(keras.ops.matmul(keras.ops.ones((8, 8)), keras.ops.ones((8, 8))))
        backend = keras.backend.backend()
        problem = find_device_problem(list_devices(backend), backend=backend, expected=params["expects"])
    if problem:
        sys.exit(f"gpuplan: {problem}")


def find_disk_problem(work: Path) -> str:
    """Return why a folder cannot take checkpoints; empty if it can."""
    probe = work / ".probe"
    try:
        probe.write_bytes(bytes(1 << 20))
        probe.unlink()
        free_gib = shutil.disk_usage(work).free / 2**30
    except OSError as error:
        return f"the disk cannot be written: {error}"
    return "" if free_gib >= ROOM_GIB else f"the disk has {free_gib:.2f} GiB left, and needs {ROOM_GIB:g}"


def list_devices(backend: str) -> list[str]:
    """Return the names of the accelerators that a backend sees."""
    if backend == "jax":
        import jax

        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    if backend == "torch":
        import torch

        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return [str(tf.config.experimental.get_device_details(gpu).get("device_name")) for gpu in gpus]


def find_device_problem(found: list[str], *, backend: str, expected: dict[str, Any]) -> str:
    """Return how the accelerators differ from the plan's; empty if they do not.

    Args:
        found: Their names.
        expected: `accelerator`, `devices` (more are no problem), and `chip`: a part of every name; empty: any.

    Example:
        >>> plan = {"accelerator": "A100-80GB", "devices": 2, "chip": "a100"}
        >>> find_device_problem(["NVIDIA A100-SXM4-80GB"], backend="jax", expected=plan)
        'jax sees 1 accelerator (NVIDIA A100-SXM4-80GB), and the plan has 2 (A100-80GB)'
    """
    names = ", ".join(dict.fromkeys(found)) or "only the CPU"
    wanted = f"and the plan has {expected['devices']} ({expected['accelerator']})"
    fits = all(expected["chip"] in re.sub(r"\W|_", "", name.lower()) for name in found)
    if len(found) >= expected["devices"] and fits:
        return ""
    return f"{backend} sees {len(found)} accelerator{'s' * (len(found) != 1)} ({names}), {wanted}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
